import json
import re
import shutil

import pytest
from small_run import run_small
from typer.testing import CliRunner

from gssc.cli import app
from gssc.files import DamagedFileError, load_tensors, read_json
from gssc.pretrained.find import open_seeds

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
    shutil.copytree(root / "run", tmp_path / "run")
    recorded = json.loads((tmp_path / "run" / "summary.json").read_text())["test"]
    for name in ("summary.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    shutil.copytree(root / "cycles", tmp_path / "cycles")
    assert evaluated(tmp_path).startswith(f"cycles-3: test mae/std {recorded:.5f}, loss ")


def test_several_seeds_and_all_of_them_together(root, tmp_path):
    for seed in (0, 1):
        run_small(root, f"out/seed-{seed}", seed=seed)
    lines = evaluated(root, run="out").splitlines()
    alone = [evaluated(root, run=f"out/seed-{seed}").rstrip() for seed in (0, 1)]
    assert lines[:2] == [line.replace("cycles-3:", f"cycles-3, seed-{seed}:") for seed, line in enumerate(alone)]
    first, second = (load_tensors(root / f"out/seed-{seed}/predictions.safetensors")[0] for seed in (0, 1))
    error = ((first["prediction"] + second["prediction"]) / 2 - first["target"]).abs().mean()
    scale = read_json(root / "out/seed-0/dataset.json")["task"]["scale"]
    together = re.fullmatch(r"cycles-3, the mean of 2 predictions: test mae/std (\S+), loss \S+", lines[2])
    assert together is not None
    assert float(together[1]) == pytest.approx(float(error) / scale, abs=2e-5)


def test_a_model_that_ships_goes_before_a_folder_of_seeds(root, tmp_path, monkeypatch):
    run_small(tmp_path, "molhiv/seed-0")
    monkeypatch.chdir(tmp_path)
    assert open_seeds("molhiv", print)[0].recipe.name == "molhiv"
    assert open_seeds("./molhiv", print)[0].recipe.name == "cycles-3"


def test_seeds_of_different_recipes_are_not_put_together(root, tmp_path):
    run_small(tmp_path, "out/seed-0")
    run_small(tmp_path, "out/seed-1", "model.channels=12", seed=1)
    with pytest.raises(
        ValueError, match=r"^run: expected runs that differ in their seeds alone, got .*out: another recipe \(model.ch"
    ):
        evaluated(tmp_path, run="out")
    # Keys that change nothing of the training may differ; what is not finished, or no seed, is not taken.
    run_small(tmp_path, "more/seed-0")
    run_small(tmp_path, "more/seed-10", "train.checkpoint_minutes=3", seed=10)
    for name in ("seed-2", "seed-0-old"):
        shutil.copytree(tmp_path / "more/seed-0", tmp_path / "more" / name)
    (tmp_path / "more/seed-2/summary.json").unlink()
    lines = evaluated(tmp_path, run="more").splitlines()
    assert lines[0] == "not finished, and left out: seed-2"
    assert [line.partition(":")[0] for line in lines[1:3]] == ["cycles-3, seed-0", "cycles-3, seed-10"]
    assert lines[3].startswith("cycles-3, the mean of 2 predictions: ")
    shutil.rmtree(tmp_path / "more/seed-0")
    shutil.rmtree(tmp_path / "more/seed-10")
    with pytest.raises(ValueError, match=r"^run: expected at least one finished seed, got .*more with seed-2, none of"):
        evaluated(tmp_path, run="more")


@pytest.mark.parametrize("name", ["dataset.json", "summary.json"])
def test_a_file_of_another_kind(root, tmp_path, name):
    shutil.copytree(root / "run", tmp_path / "run")
    (tmp_path / "run" / name).write_text("[]")
    with pytest.raises(DamagedFileError, match=rf"{name}: expected a JSON object, got list"):
        evaluated(tmp_path)


def test_errors_say_what_is_wrong(root):
    with pytest.raises(ValueError, match=r"^run: expected the folder of a run with its config.yaml, OUT/seed-N of"):
        evaluated(root, run="cycles")
    with pytest.raises(ValueError, match=r"^--split: expected one of 'train', 'val', 'test', got 'tset'.*'test'"):
        evaluated(root, "--split", "tset")


def test_help_reads_like_documentation():
    text = " ".join(runner.invoke(app, ["evaluate", "--help"]).output.replace("│", " ").split())
    assert "Score the selected weights of a run or of a pretrained model again, beside what was recorded." in text
    assert "Which graphs: train, val or test." in text


def test_names_are_printed_as_they_are(tmp_path):
    run_small(tmp_path, "run")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("name: cycles-3", "name: 'mine [/v2] [x]'"))
    assert evaluated(tmp_path).startswith("mine [/v2] [x]: test mae/std ")
    words = ["report", str(tmp_path / "run"), "-o", str(tmp_path / "report")]
    assert "mine [/v2]" in runner.invoke(app, words, catch_exceptions=False).output
