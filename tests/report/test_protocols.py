import csv
import json
import math

import pytest
from report.fake_runs import fake_run, write_json

from gssc.report.render import render
from gssc.report.runs import read_runs
from gssc.report.tables import compare, to_csv
from gssc.report.variants import group_variants
from gssc.report.write import make_page


def with_scores(folder, *protocols, own="reestimated"):
    """The folder of a run whose seeds have followed protocols, with these scores."""
    for path, found in zip(sorted(folder.glob("seed-*/summary.json")), protocols, strict=True):
        write_json(path, json.loads(path.read_text()) | {"protocol": own, "protocols": found})


def scores(seed, val, test, last_val, last_test):
    found = {"val": val, "test": test, "last_val": last_val, "last_test": last_test}
    return {key: value + 0.002 * seed for key, value in found.items()} | {"epoch": 3}


def markdown(tables):
    return render("report.md", tables=tables, paper="it", origins="", notes=())


@pytest.fixture
def variants(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1), epochs=3)
    both = [
        {"running": scores(seed, 0.1, 0.07, 0.11, 0.072), "reestimated": scores(seed, 0.09, 0.062, 0.092, math.nan)}
        for seed in (0, 1)
    ]
    with_scores(out, *both)
    fake_run(tmp_path / "b", "zinc-12k", ["model.glob=none"], seeds=(0,), epochs=3)
    return group_variants(read_runs([tmp_path]).seeds)


def test_a_row_for_selected_and_last_weights_of_each_own_first(variants):
    table = compare(variants["zinc-12k"])
    found = [(row.protocol, row.source, row.text, row.difference, row.validation) for row in table.protocols]
    assert found == [
        ("reestimated", "selected", "0.0630 ± 0.0014", "−0.0010", "0.0910 ± 0.0014"),
        ("reestimated", "last", "nan ± nan", "", "0.0930 ± 0.0014"),
        ("running", "selected", "0.0710 ± 0.0014", "+0.0070", "0.101 ± 0.001"),
        ("running", "last", "0.0730 ± 0.0014", "+0.0090", "0.111 ± 0.001"),
    ]
    assert {row.model for row in table.protocols} == {"as shipped"}
    assert not any(row.protocol for row in table.rows)


def test_all_forms_show_them(variants):
    tables = {name: compare(mine) for name, mine in variants.items()}
    text = markdown(tables.values())
    assert "| as shipped | running | selected | 2 | 0.0710 ± 0.0014 | +0.0070 (worse) | 0.101 ± 0.001 |" in text
    rows = list(csv.DictReader(to_csv(list(tables.values())).splitlines()))
    ours = [(row["protocol"], row["source"], row["mean"]) for row in rows if row["protocol"]]
    assert ours[2] == ("running", "selected", repr((0.070 + 0.072) / 2))
    assert len(ours) == 4
    page, _ = make_page(variants, tables, [])
    assert page.count("<h3>Protocols of evaluation</h3>") == 1
    assert "<td>running</td><td>last</td>" in page


def test_what_cannot_be_read_does_not_count(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=3)
    with_scores(out, {"running": 3, "reestimated": {"test": None}, "ema=0.9": {"test": 0.1}})
    variants = group_variants(read_runs([tmp_path]).seeds)["zinc-12k"]
    (row,) = compare(variants).protocols
    assert (row.protocol, row.source, row.text, row.validation) == ("ema=0.9", "selected", "0.100", "")
    with_scores(out, [1])
    variants = group_variants(read_runs([tmp_path]).seeds)["zinc-12k"]
    assert compare(variants).protocols == ()
    assert "protocols" not in markdown([compare(variants)])
