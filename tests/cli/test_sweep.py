import pytest
from small_run import SMALL, write_cycles
from typer.testing import CliRunner

from gssc.cli import app
from gssc.files import read_json
from gssc.train.sweep import parse_axis

runner = CliRunner()


def sweep(tmp_path, *words):
    write_cycles(tmp_path)
    fixed = [part for text in (*SMALL, "train.epochs=1") for part in ("--set", text)]
    common = ["--data-root", str(tmp_path), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    result = runner.invoke(
        app, ["sweep", "cycles-3", *words, *fixed, *common, "--device", "cpu"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output, read_json(tmp_path / "out" / "sweep.json")


def test_grid(tmp_path):
    output, results = sweep(tmp_path, "model.glob=gssc,none", "optim.lr=0.001,0.01", "--seeds", "0-1")
    assert len(results) == 4
    assert {tuple(result["overrides"]) for result in results} == {
        (f"model.glob={glob}", f"optim.lr={lr}") for glob in ("gssc", "none") for lr in (0.001, 0.01)
    }
    assert all(result["seeds"] == [0, 1] for result in results)
    assert "4 variants by validation" in output
    summaries = sorted((tmp_path / "out").rglob("seed-*/summary.json"))
    assert len(summaries) == 8
    before = {path: path.stat().st_mtime_ns for path in summaries}
    # The same command again reads what is finished.
    _, again = sweep(tmp_path, "model.glob=gssc,none", "optim.lr=0.001,0.01", "--seeds", "0-1")
    assert again == results
    assert {path: path.stat().st_mtime_ns for path in summaries} == before


def test_study_goes_on_where_it_stopped(tmp_path):
    pytest.importorskip("optuna")
    axes = ["optim.lr=log:1e-4..1e-2", "model.glob=gssc,none"]
    _, results = sweep(tmp_path / "whole", *axes, "--trials", "4")
    sweep(tmp_path / "parts", *axes, "--trials", "2")
    _, parts = sweep(tmp_path / "parts", *axes, "--trials", "4")
    assert [result["overrides"] for result in parts] == [result["overrides"] for result in results]
    assert len({tuple(result["overrides"]) for result in results}) == 4
    assert all(1e-4 <= result["parameters_tried"]["optim.lr"] <= 1e-2 for result in results)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "axis: expected section.key"),
        ("optim.lr=a..b", "axis: expected two numbers"),
        ("optim.lr=", "axis: expected section.key"),
    ],
)
def test_bad_axes(text, message):
    with pytest.raises(ValueError, match=message):
        parse_axis(text)


def test_wrong_key_fails_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'lr'"):
        sweep(tmp_path, "optim.lrr=1,2")
    assert not (tmp_path / "out").exists()


def test_range_needs_trials(tmp_path):
    with pytest.raises(ValueError, match="needs --trials"):
        sweep(tmp_path, "optim.lr=1e-4..1e-2")
