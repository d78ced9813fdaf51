"""From runs to pages: what is kept, what is printed, and what people wrote stays."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from report.fake_runs import fake_run, write_json
from typer.testing import CliRunner

import tools.collect
import tools.results
from gssc.pretrained.publish import read_notes
from gssc.recipes import recipe_names
from gssc.report.provenance import public_command, public_config
from gssc.report.published import all_published
from gssc.report.runs import read_seed
from gssc.report.variants import read_recorded, schedule
from gssc.report.write import write_report
from tools.ablation_plots import _name
from tools.collect import collect, compact
from tools.markers import fill
from tools.results import make_documents, write_documents

ROOT = Path(__file__).parents[2]
runner = CliRunner()
SHORT = ["train.epochs=40", "optim.warmup_epochs=4"]


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def part(text: str, name: str) -> str:
    return text.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Runs of two recipes and three ablations, kept and printed."""
    root = tmp_path_factory.mktemp("world")
    results, docs, readme = root / "results", root / "docs", root / "README.md"
    results.mkdir()
    (results / "notes.yaml").write_text("zinc-12k: {data: Mind the draw., short: A draw.}\n")
    main = fake_run(root / "runs/zinc", "zinc-12k", SHORT, seeds=(0, 1, 2))
    for seed in (0, 1, 2):
        path = main / f"seed-{seed}/summary.json"
        other = {"val": 0.05, "test": 0.06 + seed / 1000, "epoch": 3, "last_val": 0.07, "last_test": 0.08}
        write_json(path, json.loads(path.read_text()) | {"protocols": {"running": other}})
    collect([main], results, remark="A first try.")
    collect([fake_run(root / "runs/molhiv", "molhiv", seeds=(4,), epochs=100)], results)
    for name, change in (("none", "model.glob=none"), ("k4", "spectrum.k=4"), ("k8", "spectrum.k=8")):
        out = fake_run(root / f"runs/{name}", "zinc-12k", [*SHORT, change], seeds=(0, 1), worse=0.02)
        collect([out], results, f"ablation-{name}")
    readme.write_text("# Mine\n\n<!-- begin results -->\nold\n<!-- end results -->\n\nMore.\n")
    write_documents(results, docs, readme)
    return root


def test_what_is_kept_is_small_and_says_the_same(world):
    runs, kept = world / "runs/zinc/seed-1", world / "results/zinc-12k/main/seed-1"
    assert {path.name for path in kept.iterdir()} == {
        *("summary.json", "config.yaml", "environment.json", "dataset.json", "metrics.csv.gz")
    }
    before, after = read_seed(runs), read_seed(kept)
    assert (after.summary, after.config, after.dataset) == (before.summary, before.config, before.dataset)
    assert [line["epoch"] for line in after.history] == [line["epoch"] for line in before.history]
    for line, full in zip(after.history, before.history, strict=True):
        assert line["val"] == pytest.approx(full["val"], rel=1e-4)
    about = json.loads((kept.parent / "run.json").read_text())
    assert (about["commit"], about["date"], about["schedule"]) == ("0123456789", "2026-01-31", "40 of 2,000 epochs")
    assert (about["remarks"], about["seeds"]) == ("A first try.", [0, 1, 2])


def test_two_thousand_epochs_fit_into_a_hundred_kilobytes(tmp_path):
    import random

    numbers = random.Random(0)
    history = [
        {"epoch": i, "best_epoch": i, **{key: numbers.random() / i for key in ("lr", "train_loss", "val_loss", "val")}}
        | {"seconds": numbers.random(), "graphs_per_second": 1e4 * numbers.random()}
        for i in range(1, 2001)
    ]
    packed = compact(history)
    assert packed == compact(history)
    assert len(packed) < 100_000


def test_every_recipe_has_a_row(world):
    text, provenance = ((world / f"docs/{name}.md").read_text() for name in ("results", "provenance"))
    summary = rows(part(text, "summary"))[2:]
    assert [row[0] for row in summary if row[2] == "not run"] == [
        name for name in [row[0] for row in summary] if name not in ("zinc-12k", "molhiv")
    ]
    assert sorted(row[0] for row in summary) == recipe_names()  # one row each
    ours = next(row for row in summary if row[0] == "zinc-12k")
    assert "± " in ours[2]
    assert ours[2].endswith(" [1, 2]")
    assert ours[3:5] == ["3", "0.064 ± 0.002"]
    assert ours[5].endswith(" (worse)")
    assert ours[6] == "0.059 ± 0.002 (Grit)"
    footnotes = "[1] A draw.\n\n[2] Epochs, where not the recipe's: zinc-12k 40 of 2,000."
    assert part(text, "summary").endswith(f"\n\n{footnotes}\n")
    assert part(provenance, "data").strip() == "- **zinc-12k**: Mind the draw."
    assert part(provenance, "runs").strip() == "- **zinc-12k, main**: A first try."
    origin = next(row for row in rows(part(provenance, "origin")) if row[0].startswith("zinc-12k"))
    assert origin[1:6] == [
        "`gssc train zinc-12k train.epochs=40 optim.warmup_epochs=4`",
        *("`0123456789`", "A processor of two cores", "12.6 min", "2026-01-31"),
    ]
    selected, last = rows(part(provenance, "protocols"))[2:]
    assert selected[:5] == ["zinc-12k, main", "running", "selected", "0.0500 ± 0.0000", "0.0610 ± 0.0010"]
    assert last[2:5] == ["last", "0.0700 ± 0.0000", "0.0800 ± 0.0000"]


def test_every_printed_cell_of_the_paper_is_on_the_page(world):
    text = part((world / "docs/results.md").read_text(), "all-rows")
    sections = dict(section.split("\n", 1) for section in text.split("### ")[1:])
    for row in all_published():
        assert any(line[0].startswith(row.model) and line[1] == row.text for line in rows(sections[row.recipe])), row
    assert text.count("published: arXiv 2406.05815") >= 140
    assert sections["voc-sp"].count("not run") == 1
    assert "**ours, main** (40 of 2,000 epochs)" in sections["zinc-12k"]


def test_rivals_stand_among_the_rows_of_the_paper_alone(world, tmp_path):
    for name in ("main", "none"):
        collect([world / "runs" / {"main": "zinc"}.get(name, name)], tmp_path / "results", name)
    pages = make_documents(tmp_path / "results", tmp_path / "docs")
    text = pages[tmp_path / "docs/results.md"].decode()
    assert not [row for name in ("summary", "further") for row in rows(part(text, name)) if "none" in row[0]]
    (rival,) = (row for row in rows(part(text, "all-rows")) if row[0].startswith("none"))
    assert rival[-1] == "run here"
    assert any(row[0].startswith("**ours, main**") for row in rows(part(text, "all-rows")))


def test_a_second_run_of_a_recipe_is_no_second_row(world, tmp_path):
    for name in ("taught", "main"):
        collect([world / "runs/zinc"], tmp_path / "results", name)
    pages = make_documents(tmp_path / "results", tmp_path / "docs")
    text = pages[tmp_path / "docs/results.md"].decode()
    assert [row[0] for row in rows(part(text, "summary"))].count("zinc-12k") == 1
    (further,) = rows(part(text, "further"))[2:]
    (shown,) = (row for row in rows(part(text, "summary")) if row[0] == "zinc-12k")
    assert further == ["zinc-12k, taught", shown[1], shown[2].removesuffix(" [1]"), *shown[3:6]]


def test_ablations(world):
    text = (world / "docs/ablations.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        *("## Global part", "## Number of frequencies d")
    ]
    _, _, base, none = rows(part(text, "global"))
    assert (base[0], none[0]) == ("glob = gssc (as shipped)", "glob = none")
    assert none[3].startswith("+0.0")
    assert [row[0] for row in rows(part(text, "frequencies"))[2:]] == ["k = 16 (as shipped)", "k = 4", "k = 8"]
    assert "Budget: 40 of 2,000 epochs." in text
    assert text.count("Data: A draw.") == 2
    for name in ("global", "frequencies"):
        picture = (world / f"docs/figures/ablation-{name}.svg").read_text()
        assert "<svg" in picture
        assert "#0102" not in picture


def test_what_all_settings_change_is_said_once(tmp_path):
    """Where the recipe as shipped was not run, the others are compared with the setting that all build on."""
    results, wide = tmp_path / "results", "model.channels=32"
    runs = {
        "wide": [wide],
        "none": [wide, "model.glob=none"],
        "slow": [wide, "optim.lr=0.0001", "train.precision=tf32"],
    }
    for name, changes in runs.items():
        out = fake_run(tmp_path / name, "zinc-12k", [*SHORT, *changes], seeds=(0,), worse=0.02 * (name == "none"))
        collect([out], results, f"ablation-{name}")
    write_documents(results, tmp_path / "docs", None)
    text = (tmp_path / "docs/ablations.md").read_text()
    _, _, base, none = rows(part(text, "global"))
    assert (base[0], none[0]) == ("glob = gssc", "glob = none")
    assert none[3].startswith("+0.0")
    assert [row[0] for row in rows(part(text, "other"))[2:]] == ["nothing else", "optim.lr=0.0001"]
    assert text.count("All with `model.channels=32`. Budget: 40 of 2,000 epochs.") == 2
    assert "(as shipped)" not in text


def test_a_setting_that_was_stopped_says_so(tmp_path):
    results = tmp_path / "results"
    for name, changes in (("base", []), ("none", ["model.glob=none"])):
        out = fake_run(tmp_path / name, "zinc-12k", [*SHORT, *changes], seeds=(0,))
        if changes:
            summary = out / "seed-0/summary.json"
            summary.write_text(json.dumps(json.loads(summary.read_text()) | {"epochs_run": 30}))
        collect([out], results, f"ablation-{name}")
    write_documents(results, tmp_path / "docs", None)
    _, _, base, none = rows(part((tmp_path / "docs/ablations.md").read_text(), "global"))
    assert base[0] == "glob = gssc (as shipped)"
    assert none[0] == "glob = none (stopped after 30 of 40 epochs; the recipe has 2,000)"


def test_names_in_pictures_go_without_sections():
    one = SimpleNamespace(label=lambda setting: "k = 4, data.file=my.model.x=1.pt, model.layers=3, optim.lr=0.1")
    assert _name(one, None).split() == ["k", "=", "4,", "file=my.model.x=1.pt,", "layers=3,", "lr=0.1"]
    assert max(map(len, _name(one, None).splitlines())) <= 34


def test_what_people_wrote_stays(world):
    path = world / "docs/ablations.md"
    text = path.read_text()
    text = text.replace("## Global part\n", "## Global part\n\nIt helps.\n") + "\nThe end.\n"
    path.write_text(text)
    pages = make_documents(world / "results", world / "docs", world / "README.md")
    assert pages[path].decode() == text
    assert all(page == read.read_bytes() for read, page in pages.items())
    readme = (world / "README.md").read_text()
    assert readme.startswith("# Mine\n\n<!-- begin results -->\n| recipe |")
    assert "[1] A draw." in readme
    assert "\nNot run: cycles-3, " in readme
    assert readme.endswith("<!-- end results -->\n\nMore.\n")


def test_commands(world, tmp_path):
    words = [str(world / "runs/molhiv"), "-o", str(tmp_path / "results"), "--as", "main"]
    assert "molhiv/main" in runner.invoke(tools.collect.app, words, catch_exceptions=False).output.replace("\n", "")
    words = [str(tmp_path / "results"), "-o", str(tmp_path / "docs")]
    assert "results.md" in runner.invoke(tools.results.app, words, catch_exceptions=False).output
    assert (tmp_path / "docs/ablations.md").read_text() == "# Ablations\n"


def test_a_new_run_beside_the_recorded_one(world, tmp_path):
    report = write_report([world / "runs/none", world / "runs/molhiv"], tmp_path / "report", world / "results")
    ours = [(row.model, row.source) for row in report.tables["zinc-12k"].rows if row.ours]
    assert [model for model, _ in ours] == [
        "model.glob=none, optim.warmup_epochs=4, train.epochs=40",
        *("recorded, main (40 of 2,000 epochs)", "recorded, ablation-none (40 of 2,000 epochs)"),
    ]
    assert ours[1][1] == "recorded: commit 0123456789, A processor of two cores, 2026-01-31"
    new, recorded = (row for row in report.tables["molhiv"].rows if row.ours)
    assert (recorded.model, recorded.value) == ("recorded, main", new.value)
    assert report.notes == ()
    (tmp_path / "empty").mkdir()
    report = write_report([world / "runs/molhiv"], tmp_path / "report", tmp_path / "empty")
    assert any(note.endswith("no recorded result of molhiv") for note in report.notes)


def test_what_cannot_be_kept_or_printed(world, tmp_path):
    with pytest.raises(ValueError, match="runs: expected runs of one setting of each recipe"):
        collect([world / "runs"], tmp_path)
    with pytest.raises(ValueError, match="--as: expected a name"):
        collect([world / "runs/zinc"], tmp_path, "../main")
    unfinished = fake_run(tmp_path / "runs", "molhiv", seeds=(0,), unfinished=(0,))
    with pytest.raises(ValueError, match=r"runs: expected finished runs, got molhiv: seed 0 unfinished \(epoch 13 of"):
        collect([unfinished], tmp_path / "results")
    assert not (tmp_path / "results").exists()
    collect([world / "runs/molhiv"], tmp_path / "results")
    (tmp_path / "results/molhiv/main/seed-4/metrics.csv.gz").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"results: expected intact files, got .*metrics\.csv\.gz: damaged"):
        read_recorded(tmp_path / "results")
    with pytest.raises(ValueError, match="page: expected a line <!-- begin x -->, got none"):
        fill("text", {"x": "y"}, "page")
    with pytest.raises(ValueError, match="page: expected one <!-- begin x --> with its <!-- end x -->, got 0"):
        fill("<!-- begin x -->\n", {"x": "y"}, "page")
    (tmp_path / "notes.yaml").write_text("zinc-12k: {date: today}\n")
    with pytest.raises(ValueError, match=r"notes, zinc-12k: expected one of .*, got 'date' \(did you mean 'data'\?\)"):
        read_notes(tmp_path / "notes.yaml")


def test_words_of_origin():
    command = "gssc train zinc-12k --data-root /x/y --pack=/z -o a model.glob=none --seeds 0-4 --resume"
    assert public_command(command) == "gssc train zinc-12k model.glob=none --seeds 0-4"
    assert public_command("gssc train --data /x/y.pt --csv=/x/z.csv") == "gssc train --data y.pt --csv=z.csv"
    assert public_config({"name": "mine", "data": {"file": "/x/y.pt"}})["data"] == {"file": "y.pt"}
    assert public_command("gssc train zinc-full train.start=/x/zinc") == "gssc train zinc-full train.start=zinc"
    assert public_command("gssc train zinc-full train.start=runs/zinc") == "gssc train zinc-full train.start=runs/zinc"
    assert public_config({"train": {"start": "/x/zinc", "epochs": 1}})["train"] == {"start": "zinc", "epochs": 1}
    assert schedule({"name": "zinc-12k", "train": {"epochs": 2000}}) == ""
    assert schedule({"name": "mine", "train": {"epochs": 3}}) == ""
    assert schedule({"name": "zinc-12k", "train": {"epochs": 2000}}, 2000) == ""
    assert schedule({"name": "zinc-12k", "train": {"epochs": 2000}}, 7) == "stopped after 7 of 2,000 epochs"
    stopped = schedule({"name": "zinc-12k", "train": {"epochs": 40}}, 33)
    assert stopped == "stopped after 33 of 40 epochs; the recipe has 2,000"


def test_the_pages_of_this_repository_are_up_to_date():
    """`make results` has been run since the last result was kept."""
    pages = make_documents(ROOT / "results", ROOT / "docs", ROOT / "README.md")
    for path, content in pages.items():
        if path.suffix == ".md":
            assert path.read_bytes() == content, path
    for path, name in ((ROOT / "README.md", "results"), (ROOT / "docs/results.md", "summary")):
        footnotes = re.findall(r"^\[\d+\] .*", part(pages[path].decode(), name), flags=re.MULTILINE)
        assert len(footnotes) <= 5
        assert max(map(len, footnotes)) <= 120  # the rest is on the page of provenance
    assert set(read_notes(ROOT / "results/notes.yaml")) <= set(recipe_names())
