import json
import sys
from importlib import import_module

import numpy as np
import pytest
import yaml
from small_run import SMALL, outcome, run_small, small_recipe, timeless, write_cycles
from typer.testing import CliRunner

from gssc.cli import app, main
from gssc.cli.common import parse_duration

runner = CliRunner()


def words(root, *more, out="out"):
    place = ["--data-root", str(root), "--out", str(root / out), "--cache", str(root / "cache"), "--device", "cpu"]
    return ["train", "cycles-3", *SMALL, *place, *more]


def call(command):
    return runner.invoke(app, command, catch_exceptions=False)


def error_of(monkeypatch, capsys, command):
    """What the installed command says of an error: one line on stderr, and exit code 2."""
    monkeypatch.setattr(sys, "argv", ["gssc", *map(str, command)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    return text.removeprefix("error: ").rstrip("\n")


def test_seeds_are_trained_and_aggregated(tmp_path):
    write_cycles(tmp_path)
    result = call(words(tmp_path, "--seeds", "0-1", "train.epochs=2"))
    assert result.exit_code == 0
    total = json.loads((tmp_path / "out" / "summary.json").read_text())
    runs = [json.loads((tmp_path / "out" / f"seed-{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    assert total["seeds"] == [0, 1]
    assert total["test"]["values"] == [run["test"] for run in runs]
    assert f"test mae/std {total['test']['mean']:.5f} ± {total['test']['std']:.5f} (2 seeds)" in result.output
    alone, _ = run_small(tmp_path, "alone", "train.epochs=2", seed=1)
    assert outcome(tmp_path / "out" / "seed-1") == outcome(alone)
    # Again, with --resume: only read. Without it: refused.
    again = call(words(tmp_path, "--seeds", "0-1", "--resume", "train.epochs=2"))
    assert again.exit_code == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == total


def test_quiet_shows_the_result_alone(tmp_path):
    write_cycles(tmp_path)
    result = call(words(tmp_path, "--quiet", "train.epochs=1"))
    validation, test, where = result.output.splitlines()
    assert "±" not in result.output  # one seed
    assert validation.startswith("cycles-3: validation mae/std ")
    assert test.startswith("cycles-3: test mae/std ")
    assert test.endswith("(1 seed)")
    assert where == f"written to {tmp_path / 'out'}"


def test_retired_keys_of_a_recorded_configuration_and_of_the_command_are_said_once(tmp_path, monkeypatch):
    """As ``make reproduce`` does it: a recorded config.yaml in place of a recipe, and changes."""
    monkeypatch.setattr("gssc.config._said", set())
    write_cycles(tmp_path)
    config = small_recipe().to_dict()
    config["train"] |= {"also": "reestimated", "also_every": 25, "accumulate": 1, "pad": False}
    recorded = tmp_path / "config.yaml"
    recorded.write_text(yaml.safe_dump(config))
    place = ["--data-root", str(tmp_path), "--out", str(tmp_path / "out"), "--device", "cpu", "--quiet"]
    result = call(["train", str(recorded), *place, "train.epochs=1", "train.also=running"])
    assert result.exit_code == 0
    said = [line for line in result.stderr.splitlines() if "retired" in line]
    assert said == [
        "train.also=reestimated train.also_every=25: retired and ignored, it evaluated the run in further ways; "
        "there is one, that of train.ema and train.batch_stats"
    ]
    written = yaml.safe_load((tmp_path / "out/seed-0/config.yaml").read_text())
    assert not {"also", "also_every", "accumulate", "pad"} & set(written["train"])
    assert call(["evaluate", str(tmp_path / "out/seed-0"), *place[:2], "--device", "cpu"]).exit_code == 0


@pytest.mark.parametrize("precision", ["float64", "bf16"])
def test_precision(tmp_path, precision):
    write_cycles(tmp_path)
    assert call(words(tmp_path, f"train.precision={precision}", "train.epochs=1")).exit_code == 0
    place = ["--data-root", str(tmp_path), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    evaluated = call(["evaluate", str(tmp_path / "out" / "seed-0"), *place])
    recorded = json.loads((tmp_path / "out" / "seed-0" / "summary.json").read_text())["test"]
    assert f"test mae/std {recorded:.5f} (recorded: {recorded:.5f}, the same bits)" in evaluated.output


def test_a_time_limit_ends_well_and_says_how_to_go_on(tmp_path):
    write_cycles(tmp_path)
    result = call(words(tmp_path, "--time-limit", "0.5s"))
    assert result.exit_code == 0
    assert "stopped after epoch 0 of 4; --resume goes on from here" in result.output
    assert not (tmp_path / "out" / "summary.json").exists()
    assert call(words(tmp_path, "--resume")).exit_code == 0
    alone, _ = run_small(tmp_path, "alone")
    assert outcome(tmp_path / "out" / "seed-0") == outcome(alone)


def test_jobs_reach_the_seeds(tmp_path, monkeypatch):
    write_cycles(tmp_path)
    given = []

    def train_seeds(recipe, dataset, folders, settings, jobs):
        given.append(({seed: folder.name for seed, folder in folders.items()}, settings.resume, jobs, settings.threads))
        return {1: None}

    monkeypatch.setattr(import_module("gssc.train.seeds"), "train_seeds", train_seeds)
    call(words(tmp_path, "--jobs", "2", "--seeds", "1,3", "--threads", "1"))
    assert given == [({1: "seed-1", 3: "seed-3"}, False, 2, 1)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["train.epoch=3"], "override train: expected one of .*'epochs'.*, got 'epoch' (did you mean 'epochs'?)"),
        (["trian.epochs=3"], "override section: expected one of .*, got 'trian' (did you mean 'train'?)"),
        (["train.epochs=many"], "train.epochs: expected an integer, got 'many'"),
        (["train.eval_every=0"], "train.eval_every: expected a positive integer, got 0"),
        (["model.local=[a"], "override model.local: expected a value in YAML, got '[a' .*"),
        (["epochs=3"], "override: expected section.key=value, got 'epochs=3'"),
        (["--seeds", "4-2"], "seeds: expected numbers and ranges such as 0-4 or 0,2,5, got '4-2'"),
        (["--device", "gpu"], "--device: expected one of 'auto', 'cpu', 'cuda', got 'gpu'.*"),
        (["--device", "cpu:x"], "--device: expected a device such as 'cpu' or 'cuda', got 'cpu:x'"),
        (["--time-limit", "soon"], "--time-limit: expected a time such as 90s, 10m or 2h, got 'soon'"),
        (["--time-limit", "-1h"], "--time-limit: expected a positive time, got '-1h'"),
    ],
)
def test_errors_are_one_line_that_helps(tmp_path, monkeypatch, capsys, more, message):
    import re

    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    assert re.fullmatch(pattern, error_of(monkeypatch, capsys, words(tmp_path, *more)))
    assert not (tmp_path / "out").exists()


def test_a_recipe_is_needed(monkeypatch, capsys):
    expected = "recipe: expected the name of a recipe, --data FILE or --csv FILE, got none of them"
    assert error_of(monkeypatch, capsys, ["train"]) == expected
    assert error_of(monkeypatch, capsys, ["train", "train.epochs=3"]) == expected
    assert "did you mean 'cycles-3'?" in error_of(monkeypatch, capsys, ["train", "cycle-3"])


def test_a_used_folder_is_refused(tmp_path, monkeypatch, capsys):
    run_small(tmp_path, "out/seed-0", "train.epochs=1")
    before = outcome(tmp_path / "out" / "seed-0")
    message = error_of(monkeypatch, capsys, words(tmp_path, "train.epochs=1"))
    assert message.startswith("out: expected a new folder, or --resume")
    message = error_of(monkeypatch, capsys, words(tmp_path, "train.epochs=3", "--resume"))
    assert message.endswith("got another recipe (train.epochs: 1 there, 3 here)")
    assert outcome(tmp_path / "out" / "seed-0") == before


@pytest.mark.parametrize("how", ["cut", "bit", "foreign"])
def test_a_bad_checkpoint_is_one_line_and_stays(tmp_path, monkeypatch, capsys, how):
    # Brackets in a path are no markup.
    out = "out[/red]"
    folder, _ = run_small(tmp_path, f"{out}/seed-0", "train.epochs=1")
    (folder / "summary.json").unlink()
    path = folder / "checkpoints" / "last.safetensors"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 16
    path.write_bytes({"cut": raw[:-5], "bit": raw, "foreign": b"#!/bin/sh\nrm -rf everything\n"}[how])
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    message = error_of(monkeypatch, capsys, words(tmp_path, "train.epochs=1", "--resume", out=out))
    assert message.startswith(f"{path}: expected an intact safetensors file of gssc, got ")
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_names_of_own_files_and_columns_are_taken_literally():
    from pathlib import Path

    from gssc.cli.train import _recipe

    recipe = _recipe(
        None, ["train.epochs=3"], None, Path("a #1: 2024.csv"), "yes", "2,null", "scaffold", skip_invalid=True
    )
    assert recipe.data.file == "a #1: 2024.csv"
    assert (recipe.data.smiles_column, recipe.data.target_columns) == ("yes", "2,null")
    assert recipe.data.skip_invalid
    assert recipe.train.epochs == 3


def test_durations():
    assert [parse_duration(text) for text in ("90", "90s", "1.5m", "2h")] == [90.0, 90.0, 90.0, 7200.0]


def test_help_reads_like_documentation():
    text = " ".join(call(["train", "--help"]).output.replace("│", " ").split())
    for phrase in (
        "Train a recipe, or a model for your own data, and score it on the test set.",
        "After a crash, the same command with --resume goes on where the last checkpoint was written; with --finish",
        "gssc train zinc-12k --seeds 0-4",
        "torchrun --nproc-per-node 2 -m gssc train zinc-12k",
        "Stop with a checkpoint before this time is over: 90s, 10m, 2h.",
    ):
        assert phrase in text


def test_summaries_depend_on_the_clock_only_where_they_say_so(tmp_path):
    write_cycles(tmp_path)
    found = []
    for out in ("a", "b"):
        call(words(tmp_path, "train.epochs=1", out=out))
        found.append(json.loads((tmp_path / out / "summary.json").read_text()))
    assert timeless(found[0]) == timeless(found[1])
    assert {key for key in found[0] if "seconds" in key} == {"train_seconds"}


def test_output_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    write_cycles(tmp_path)
    (tmp_path / "file").write_text("")
    said = error_of(monkeypatch, capsys, words(tmp_path, "train.epochs=1", out="file"))
    assert said.startswith(str(tmp_path / "file"))
    assert said.endswith(": Not a directory")


def test_a_quiet_run_says_that_it_was_stopped(tmp_path):
    write_cycles(tmp_path)
    result = call(words(tmp_path, "--quiet", "--time-limit", "0.01s"))
    assert result.output == "stopped, 0 of 1 seeds done; --resume goes on from there\n"


def test_a_large_graph_by_name_and_its_splits(tmp_path, monkeypatch, capsys):
    generator, count = np.random.default_rng(0), 60
    edges = np.stack([np.arange(count), (np.arange(count) + 1) % count], axis=1)
    part = np.arange(count) // 2 % 3
    masks = {f"{name}_masks": np.tile(part == number, (10, 1)) for number, name in enumerate(("train", "val", "test"))}
    (tmp_path / "tolokers" / "raw").mkdir(parents=True)
    arrays = {"node_features": generator.normal(size=(count, 10)).astype(np.float32), "node_labels": edges[:, 0] % 2}
    np.savez(tmp_path / "tolokers" / "raw" / "tolokers.npz", **arrays, edges=edges, **masks)
    small = ["model.layers=1", "model.channels=8", "spectrum.k=4", "train.epochs=1"]
    place = ["--data-root", str(tmp_path), "--out", str(tmp_path / "out"), "--device", "cpu"]
    result = call(["train", "tolokers", *small, *place, "--splits", "0,3"])
    assert "tolokers: test auroc" in result.output
    for number in (0, 3):
        config = yaml.safe_load((tmp_path / "out" / f"seed-{number}" / "config.yaml").read_text())
        assert (config["data"]["dataset"], config["data"]["mask"]) == ("tolokers", number)
    wrong = ["train", "tolokers", *small, *place, "--splits", "10"]
    expected = "--splits: expected numbers below 10, the splits that the masks hold, got 10"
    assert error_of(monkeypatch, capsys, wrong) == expected
    wrong = ["train", "cycles-3", *place, "--splits", "0"]
    assert error_of(monkeypatch, capsys, wrong) == "--splits: expected --data FILE with it, got a recipe's own data"
