import json
import shutil

import pytest
import yaml
from report.fake_runs import fake_run
from small_run import run_small
from typer.testing import CliRunner

from gssc.report.variants import read_recorded
from tools.collect import app, collect


def test_keeps_the_small_part_and_the_remark(tmp_path):
    folder, summary = run_small(tmp_path, "run", "train.epochs=2")
    words = [str(folder), "-o", str(tmp_path / "results"), "--remark", "Two epochs only."]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    assert said.exit_code == 0
    kept = next((tmp_path / "results").glob("*/main"))
    about = json.loads((kept / "run.json").read_text())
    assert about["remarks"] == "Two epochs only."
    (seed,) = [path for path in kept.iterdir() if path.is_dir()]
    assert json.loads((seed / "summary.json").read_text())["test"] == summary["test"]
    assert not list(kept.rglob("*.safetensors"))


def test_a_folder_without_runs_is_an_error(tmp_path):
    said = CliRunner().invoke(app, [str(tmp_path), "-o", str(tmp_path / "results")])
    assert said.exit_code != 0
    assert not (tmp_path / "results").exists()


def test_a_recipe_on_other_data_is_another_result(tmp_path):
    folder = fake_run(tmp_path / "runs/a", "zinc-12k", seeds=(0,), epochs=3)
    other = fake_run(tmp_path / "runs/b", "zinc-12k", seeds=(0,), epochs=3)
    config = yaml.safe_load((other / "seed-0/config.yaml").read_text())
    config["data"] |= {"dataset": "own", "file": "mine.csv"}
    (other / "seed-0/config.yaml").write_text(yaml.safe_dump(config))
    about = json.loads((other / "seed-0/dataset.json").read_text())
    (other / "seed-0/dataset.json").write_text(json.dumps(about | {"name": "mine"}))
    written = collect([folder, other], tmp_path / "results")
    assert len(set(written)) == 2
    assert tmp_path / "results/zinc-12k/main" in written
    # What a command that was killed has left is no result.
    shutil.copytree(tmp_path / "results/zinc-12k/main", tmp_path / "results/zinc-12k/.main.0123.old")
    assert [one.name for one in read_recorded(tmp_path / "results")] == ["main", "main"]


def test_a_seed_that_occurs_twice_is_said(tmp_path):
    first = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=3)
    again = fake_run(tmp_path / "b", "zinc-12k", seeds=(0,), epochs=3)
    with pytest.raises(ValueError, match="runs: expected every seed once, got zinc-12k: the same seed of the same"):
        collect([first, again], tmp_path / "results")
