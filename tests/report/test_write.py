import importlib.util
import os
import sys

import pytest
from report.fake_runs import fake_run
from typer.testing import CliRunner

from gssc.cli import app, main
from gssc.files import write_files
from gssc.report import write_report

NAMES = ["report.csv", "report.html", "report.md", "report.tex"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    fake_run(folder / "a", "zinc-12k", seeds=(0, 1), epochs=5)
    fake_run(folder / "b", "zinc-12k", ["model.glob=none"], seeds=(0,), worse=0.1, epochs=5)
    fake_run(folder / "c", "molhiv", seeds=(0,), unfinished=(0,), epochs=5)
    (folder / "a/seed-0/predictions.safetensors").write_bytes(b"damaged")
    return folder


def test_the_command(runs, tmp_path):
    command = ["report", str(runs), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "140"}, catch_exceptions=False)
    assert result.exit_code == 0
    assert sorted(os.listdir(tmp_path / "out")) == NAMES
    assert "model.glob=none" in result.output
    # Damage is told, in the terminal and in the files, and the rest goes on.
    assert "note: " in result.output
    assert "seed-0/predictions.safetensors: expected a safetensors file" in result.output
    for name in ("report.md", "report.html"):
        assert "seed-0/predictions.safetensors: expected" in (tmp_path / "out" / name).read_text()
    assert "Test set, seed 1:" in (tmp_path / "out/report.html").read_text()


def test_the_same_runs_give_the_same_bytes(runs, tmp_path):
    for name in ("first", "second"):
        write_report([runs], tmp_path / name)
    for name in NAMES:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_no_runs_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["gssc", "report", str(tmp_path / "empty"), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("error: run: expected a folder with seed-N folders")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_matplotlib(runs, tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    with pytest.raises(ValueError, match=r"the package matplotlib \(pip install matplotlib\), got no such package"):
        write_report([runs], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failure_keeps_the_earlier_files(tmp_path, monkeypatch):
    write_files(tmp_path, {"a": b"1", "b": b"1"})
    real = os.fsync
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"output folder: expected one that can be written, got .*No space left"):
        write_files(tmp_path, {"a": b"2", "b": b"2"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1", "b": b"1"}


def test_the_output_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="output folder: expected one that can be written"):
        write_files(tmp_path / "file", {"a": b"1"})
