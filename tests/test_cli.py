import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import gssc.cli
from gssc.cli import app
from gssc.config import describe_keys
from gssc.datasets import cycles

runner = CliRunner()


@pytest.fixture
def few_graphs(monkeypatch):
    monkeypatch.setattr(cycles, "GRAPHS", 20)
    monkeypatch.setattr(cycles, "TRAIN", 8)
    monkeypatch.setattr(cycles, "VALIDATION", 4)


def test_prepare_fills_the_cache_and_reads_it_again(few_graphs, tmp_path):
    command = ["prepare", "cycles-3", "spectrum.k=4", "--data-root", str(tmp_path), "--cache", str(tmp_path / "cache")]
    first = runner.invoke(app, command, catch_exceptions=False)
    assert first.exit_code == 0
    assert "proved" in first.output
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.safetensors")}
    assert len(files) == 3
    runner.invoke(app, command, catch_exceptions=False)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.safetensors")} == files
    runner.invoke(app, [*command[:2], "spectrum.k=5", *command[3:]], catch_exceptions=False)
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 6


@pytest.mark.parametrize("words", [[], ["conv", "--seconds", "10"]])
def test_bench_says_where_benchmarks_are(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gssc", "bench", *words])
    with pytest.raises(SystemExit) as ended:
        gssc.cli.main()
    assert ended.value.code == 2
    assert "benchmarks live in benchmarks/ of the repository" in capsys.readouterr().err
    assert "bench" not in runner.invoke(app, ["--help"]).output


def test_recipes_are_listed():
    output = runner.invoke(app, ["recipes"], catch_exceptions=False).output
    assert "zinc-12k" in output
    assert "0.064" in output


def test_keys_are_listed_one_per_line():
    lines = runner.invoke(app, ["recipes", "--keys"], catch_exceptions=False).output.splitlines()
    assert "spectrum.k=16  # eigenpairs per graph (an integer from 1)" in lines
    assert len(lines) == len(describe_keys())


def test_errors_are_one_line():
    run = subprocess.run(
        [sys.executable, "-m", "gssc", "prepare", "zinc12k"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stderr.startswith("error: recipe: expected one of")
    assert "did you mean 'zinc-12k'" in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [[], ["prepare"], ["recipes"]])
def test_help_explains(command):
    output = runner.invoke(app, [*command, "--help"], catch_exceptions=False).output
    assert "Usage" in output
    assert len(output) > 200


LIGHT = """
import sys
from typer.testing import CliRunner
from gssc.cli import COMMANDS, app
words = [["--version"], ["--help"], *([command.__name__, "--help"] for command in COMMANDS)]
assert all(CliRunner().invoke(app, each).exit_code == 0 for each in words)
print(*sorted({"torch", "torch_geometric", "torchmetrics", "numpy", "scipy", "matplotlib"} & set(sys.modules)))
"""


def test_help_of_every_command_waits_for_nothing_heavy():
    run = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_names_of_the_package_are_there_when_asked_for():
    assert all(getattr(gssc, name).__name__.rpartition(".")[2] == name for name in gssc.__all__)
    assert gssc.explain.__name__ == "gssc.explain"
    assert set(dir(gssc)) >= set(gssc.__all__)
    with pytest.raises(AttributeError, match="module 'gssc' has no attribute 'GSC'"):
        _ = gssc.GSC


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (MemoryError(), "nothing more was said"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory\nmore"), "can't allocate memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), "Tried to allocate 9 GiB"),
    ],
)
def test_too_little_memory_is_one_line(monkeypatch, capsys, error, shown):
    def command():
        raise error

    monkeypatch.setattr(gssc.cli, "app", command)
    with pytest.raises(SystemExit):
        gssc.cli.main()
    line = capsys.readouterr().err
    assert line.startswith("error: memory: expected enough for this model and batch, got too little (")
    assert shown in line
    assert line.count("\n") == 1


def test_other_errors_keep_their_traceback(monkeypatch):
    def command():
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(gssc.cli, "app", command)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        gssc.cli.main()
