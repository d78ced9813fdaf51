import json

import pytest
from report.fake_runs import fake_run, write_json

from gssc.report.figures import predictions_plot
from gssc.report.runs import read_runs
from gssc.report.write import write_report


def test_a_seed_an_output_and_a_folder_of_outputs(tmp_path):
    first = fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1, 10), epochs=6)
    fake_run(tmp_path / "deep/b", "molhiv", seeds=(0,), epochs=6)
    assert [run.seed for run in read_runs([first]).seeds] == [0, 1, 10]
    assert [run.seed for run in read_runs([first / "seed-1"]).seeds] == [1]
    assert [run.recipe for run in read_runs([tmp_path]).seeds] == ["zinc-12k"] * 3 + ["molhiv"]
    # The same folder by several ways counts once.
    assert len(read_runs([tmp_path, first, first / "seed-0"]).seeds) == 4
    assert read_runs([tmp_path]).notes == ()
    # What a command that was killed has left counts for nothing.
    first.rename(tmp_path / ".a.0123.tmp")
    assert [run.recipe for run in read_runs([tmp_path]).seeds] == ["molhiv"]


def test_content(tmp_path):
    run = read_runs([fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=6)]).seeds[0]
    assert (run.dataset_name, run.status, len(run.history)) == ("zinc-12k", "finished", 6)
    assert run.section("model")["layers"] == 10
    assert predictions_plot(run)[1] == "2,000 rows"


def test_a_renamed_seed_folder(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(3,), epochs=6)
    moved = (out / "seed-3").rename(tmp_path / "best")
    assert read_runs([moved]).seeds[0].seed == 3


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_no_runs_there(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=f"run: expected .*{name}"):
        read_runs([tmp_path / name])


def test_unfinished(tmp_path):
    runs = read_runs([fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1), unfinished=(1,), epochs=6)])
    assert [run.status for run in runs.seeds] == ["finished", "unfinished (epoch 2 of 2000)"]
    assert predictions_plot(runs.seeds[1]) is None
    assert runs.notes == ()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", b'{"test": 0.06'),
        ("summary.json", b"[]"),
        ("summary.json", b'{"metric": "mae", "validation": 0.1, "test": "good"}'),
        ("summary.json", b"\xff\xfe\x00"),
        ("summary.json", b'{"metric": "mae", "validation": 0.1, "test": 1' + b"0" * 400 + b"}"),
        ("environment.json", b"{"),
        ("dataset.json", b"null!"),
        ("config.yaml", b"name: [zinc\n  - x: {"),
        ("config.yaml", b"just text"),
        ("config.yaml", b"name: 2026-99-99"),
        ("config.yaml", b"\x80\x81"),
        ("metrics.jsonl", b'{"epoch": 1, "train_loss": 0.5}\n{"epoch": 2, "tra'),
        ("metrics.jsonl", b"\x00\xff\n[]\n3\n" + b'{"epoch": Infinity}\n'),
    ],
)
def test_damage_is_a_note_that_names_the_file(tmp_path, file, content):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1), epochs=6)
    (out / "seed-1" / file).write_bytes(content)
    runs = read_runs([out])
    mine = [note for note in runs.notes if str(out / "seed-1" / file) in note]
    assert len(mine) == 1
    assert "damaged" in mine[0]
    assert "\n" not in mine[0]
    assert runs.seeds[0].status == "finished"
    assert runs.seeds[1].status == ("damaged" if file == "summary.json" else "finished")


def test_a_score_that_is_not_defined_is_no_damage(tmp_path):
    out = fake_run(tmp_path / "a", "molhiv", seeds=(0,), epochs=6)
    summary = json.loads((out / "seed-0/summary.json").read_text())
    (out / "seed-0/summary.json").write_text(json.dumps(summary | {"validation": None, "test": None}))
    (run,) = read_runs([out]).seeds
    assert run.status == "finished"
    assert write_report([out], tmp_path / "report").notes is not None


def test_a_torn_last_line_leaves_the_rest(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=6)
    path = out / "seed-0/metrics.jsonl"
    path.write_text(path.read_text()[:-30])
    assert [line["epoch"] for line in read_runs([out]).seeds[0].history] == [1, 2, 3, 4, 5]
    assert "line 6 of 6" in read_runs([out]).notes[0]


def test_an_epoch_written_twice_counts_as_last_written(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=6)
    with (out / "seed-0/metrics.jsonl").open("a") as file:
        file.write(json.dumps({"epoch": 6, "train_loss": 7.0}) + "\n")
    run = read_runs([out]).seeds[0]
    assert len(run.history) == 6
    assert run.history[-1]["train_loss"] == 7.0


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 100])
def test_damaged_predictions(tmp_path, content):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=6)
    (out / "seed-0/predictions.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"predictions\.safetensors: expected a safetensors file"):
        predictions_plot(read_runs([out]).seeds[0])


def test_a_summary_that_contradicts_its_seeds(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1), epochs=6)
    summary = json.loads((out / "summary.json").read_text())
    write_json(out / "summary.json", summary | {"test": {"mean": 0.5}})
    assert read_runs([out]).notes == (f"{out / 'summary.json'}: its mean 0.5 is not that of its seeds",)
    write_json(out / "summary.json", summary | {"seeds": [0, 1, 2]})
    assert read_runs([out]).notes == (f"{out / 'summary.json'}: lists seed 2, of which there is no score",)
    # One seed of several, asked for by name, is no contradiction.
    write_json(out / "summary.json", summary)
    assert read_runs([out / "seed-0"]).notes == ()
