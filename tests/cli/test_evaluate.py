import json

import pytest
from small_run import run_small
from typer.testing import CliRunner

from gssc.cli import app

runner = CliRunner()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder, "run", "train.ema=0.5")
    return folder


def evaluated(root, *more, run="run"):
    place = ["--data-root", str(root), "--cache", str(root / "cache"), "--device", "cpu"]
    return runner.invoke(app, ["evaluate", str(root / run), *place, *more], catch_exceptions=False).output


@pytest.mark.parametrize(("split", "key"), [("test", "test"), ("val", "validation")])
def test_recorded_scores_are_reproduced_to_the_last_digit(root, split, key):
    recorded = json.loads((root / "run" / "summary.json").read_text())[key]
    line = evaluated(root, "--split", split)
    assert line.startswith(f"cycles-3: {split} mae/std {recorded:.5f} (recorded: {recorded:.5f}, the same bits), loss ")
    assert line.endswith("4 graphs\n")


def test_the_training_set_has_no_recorded_score(root):
    assert "recorded" not in evaluated(root, "--split", "train")
    assert "12 graphs" in evaluated(root, "--split", "train")


def test_a_run_that_is_not_finished_is_scored_by_its_best_weights_so_far(root, tmp_path):
    import shutil

    shutil.copytree(root / "run", tmp_path / "run")
    recorded = json.loads((tmp_path / "run" / "summary.json").read_text())["test"]
    for name in ("summary.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    shutil.copytree(root / "cycles", tmp_path / "cycles")
    assert evaluated(tmp_path).startswith(f"cycles-3: test mae/std {recorded:.5f}, loss ")


def test_errors_say_what_is_wrong(root):
    with pytest.raises(ValueError, match=r"^run: expected the folder of a run with its config.yaml, OUT/seed-N of"):
        evaluated(root, run="cycles")
    with pytest.raises(ValueError, match=r"^--split: expected one of 'train', 'val', 'test', got 'tset'.*'test'"):
        evaluated(root, "--split", "tset")


def test_help_reads_like_documentation():
    text = " ".join(runner.invoke(app, ["evaluate", "--help"]).output.replace("│", " ").split())
    assert "Score the selected weights of a run or of a pretrained model again, beside what was recorded." in text
    assert "Which graphs: train, val or test." in text
