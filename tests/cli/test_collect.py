import json

from small_run import run_small
from typer.testing import CliRunner

from gssc.cli import app


def test_keeps_the_small_part_and_the_remark(tmp_path):
    folder, summary = run_small(tmp_path, "run", "train.epochs=2")
    words = ["collect", str(folder), "-o", str(tmp_path / "results"), "--remark", "Two epochs only."]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    assert said.exit_code == 0
    kept = next((tmp_path / "results").glob("*/main"))
    about = json.loads((kept / "run.json").read_text())
    assert about["remarks"] == "Two epochs only."
    (seed,) = [path for path in kept.iterdir() if path.is_dir()]
    assert json.loads((seed / "summary.json").read_text())["test"] == summary["test"]
    assert not list(kept.rglob("*.safetensors"))


def test_a_folder_without_runs_is_an_error(tmp_path):
    said = CliRunner().invoke(app, ["collect", str(tmp_path), "-o", str(tmp_path / "results")])
    assert said.exit_code != 0
    assert not (tmp_path / "results").exists()
