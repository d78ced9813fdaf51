"""Everything the README and the docs show is run: Python blocks with the output below them, and commands."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from small_run import write_cycles
from typer.testing import CliRunner

from gssc.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# A Python block, and the plain block that follows it when the text between says that it prints.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n(?:It )?[Pp]rints:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
PYTHON = [
    pytest.param(*block, id=f"{path.name}-{number}")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "start.md"  # run as a whole below
    for number, block in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")))
]
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
# `make test` is this run; installing brings downloads of dependencies, and the wheel has a test of its own.
NOT_RUN = {"make test", "make test-slow", "pip install ."}


def test_readme_shows_what_the_project_promises():
    assert {"make demo", "make test"} <= set(COMMANDS)
    assert len(PYTHON) >= 4
    assert any(block.values[1] for block in PYTHON)


@pytest.mark.parametrize(("code", "output"), PYTHON)
def test_python_block(code, output):
    if "smiles" in code.lower():
        pytest.importorskip("rdkit")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    if output:
        assert printed.getvalue() == output


def test_ten_minutes(tmp_path, monkeypatch):
    """The page `start.md` from top to bottom as a user goes through it, with a smaller model for one epoch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    blocks = re.findall(r"```(python|text)\n(.*?)```", (ROOT / "docs/start.md").read_text(encoding="utf-8"), re.DOTALL)
    asked = []
    for kind, text in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, "start.md", "exec"), {})
        for line in text.splitlines() if kind == "text" else ():
            if line.startswith("gssc "):
                words = [*shlex.split(line)[1:], *(["train.epochs=1", "model.layers=2"] if " train " in line else [])]
                asked.append(CliRunner().invoke(app, words, catch_exceptions=False))
                assert asked[-1].exit_code == 0, line
    said = "".join(result.output for result in asked)
    (found,) = (text for _, text in blocks if text.startswith("trees: 400"))
    assert all(line in said for line in found.splitlines()[:3])
    assert printed.getvalue() == "torch.Size([3, 1])\n"
    assert Path("predictions.csv").read_text().startswith("graph,prediction\n0,")
    assert Path("report/report.html").exists()
    assert Path("models/trees/README.md").exists()


# What `make bench` runs has tests of its own; whole, it takes minutes.
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] if command == "make bench" else [])
        for command in sorted(set(COMMANDS) - NOT_RUN)
    ],
)
def test_command(command, tmp_path):
    assert re.fullmatch(r"(make|gssc) [A-Za-z0-9= -]+", command), "tell the test how to run this"
    if not (ROOT / ".venv" / "ready").exists():
        pytest.skip("the commands use .venv, which make creates; there is none")
    environment = {
        **os.environ,
        "RESULTS": str(tmp_path / "results.csv"),
        "BENCH_SECONDS": "1",
        "ARGS": "train.epochs=1 model.layers=1 model.channels=16 model.selective=false spectrum.k=8",
        "EPOCHS": "40",
        "DATA_ROOT": str(tmp_path / "data"),
        "DEVICE": "cpu",
        "GSSC_CACHE": str(tmp_path / "cache"),
        "OUT": str(tmp_path / "out"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    write_cycles(tmp_path / "data")  # a few graphs instead of thousands
    folder = ROOT if command.startswith("make") else tmp_path
    subprocess.run(command.split(), cwd=folder, env=environment, check=True, timeout=900, stdout=subprocess.DEVNULL)
    if command == "make demo":
        report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
        errors = {
            row[0]: [float(value) for value in row[2:]]
            for row in ([cell.strip() for cell in line.strip("|").split("|")] for line in report.splitlines())
            if row[0] in ("GSSC", "GIN")
        }
        # A wide margin, whatever the rounding of the machine: the published 3-cycle error of a GIN is 0.35.
        assert all(ours < theirs / 2 for ours, theirs in zip(errors["GSSC"], errors["GIN"], strict=True))
        assert errors["GSSC"][0] < errors["GIN"][0] / 8
        assert (tmp_path / "out" / "predicted-against-true.png").stat().st_size > 10_000
    if command.startswith("make reproduce"):
        report = (tmp_path / "out" / "report" / "report.md").read_text(encoding="utf-8")
        assert "ours: " in report
        assert "GSSC (the paper)" in report
    if command == "make bench":
        assert "explicit z" in (tmp_path / "results.csv").read_text(encoding="utf-8")
