import pytest
from report.fake_runs import fake_run, write_json

from gssc.report import results_markdown, write_results
from gssc.report.provenance import duration, provenance
from gssc.report.runs import read_runs
from gssc.report.variants import group_variants


def cells(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_number_says_where_it_comes_from(tmp_path):
    fake_run(tmp_path / "a", "zinc-12k", ["model.glob=none"], seeds=(0, 1), epochs=3)
    fake_run(tmp_path / "b", "molhiv", seeds=(0,), unfinished=(0,), epochs=3)
    path = tmp_path / "docs/results.md"
    write_results(path, [tmp_path], before="# Numbers\n\nText.\n", footnotes={"zinc-12k": "Mind the split."})
    text = path.read_text()
    assert text.startswith("# Numbers\n\nText.\n\n| recipe |")
    (row,) = cells(text)
    assert (row["recipe"], row["variant"], row["seeds"]) == ("zinc-12k [1]", "model.glob=none", "0, 1")
    assert row["published"] == "0.064 ± 0.002"
    assert row["command"] == "`gssc train zinc-12k model.glob=none`"
    assert (row["commit"], row["date"]) == ("`0123456789`", "2026-01-31")
    assert row["hardware"] == "A processor of two cores"
    assert row["time per seed"] == "12.6 min"
    assert "[1] Mind the split." in text
    assert "Unfinished and left out: molhiv (as shipped)." in text


@pytest.mark.parametrize(
    ("hardware", "commit", "expected"),
    [
        ({"device": "A GPU", "cpu": "A CPU"}, "0123456789ab+", ("A GPU", "0123456789+")),
        ({"device": "cpu", "cpu": "A CPU"}, "0123456789ab", ("A CPU", "0123456789")),
        ("a laptop", "unknown", ("a laptop", "unknown")),
        (None, None, ("", "")),
    ],
)
def test_provenance(tmp_path, hardware, commit, expected):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=3)
    write_json(out / "seed-0/environment.json", {"hardware": hardware, "commit": commit})
    found = provenance(read_runs([out]).seeds[0].environment)
    assert (found["hardware"], found["commit"]) == expected


def test_what_the_environment_does_not_tell_stays_empty(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=3)
    (out / "seed-0/environment.json").unlink()
    (row,) = cells(results_markdown(group_variants(read_runs([out]).seeds)["zinc-12k"]))
    assert (row["command"], row["hardware"], row["test"]) == ("", "", row["test"])
    assert row["test"]


@pytest.mark.parametrize(("seconds", "text"), [(3.04, "3.0 s"), (59.0, "59.0 s"), (90, "1.5 min"), (22000, "6.1 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text
