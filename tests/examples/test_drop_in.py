"""PyG's script for GPSConv runs with GSSCBlock in its place, and the lines that say so are all that differs."""

import re
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "drop_in.py"
CHANGED = re.compile(r"^( *)(\S.*)  # was: (.+)$", re.MULTILINE)


def run(source, *arguments):
    names = {"__name__": "drop_in"}
    exec(compile(source, str(PATH), "exec"), names)
    return names["main"](list(arguments))


def test_the_transform_and_two_lines_are_changed():
    ours = [match[2] for match in CHANGED.finditer(PATH.read_text())]
    assert len(ours) == 3
    assert all(name in line for line, name in zip(ours, ("DataLoader", "Compose", "GSSCBlock"), strict=True))
    assert "GSSCBlock(" not in CHANGED.sub(r"\1\3", PATH.read_text())


@pytest.mark.parametrize("pyg", [False, True], ids=["gssc", "pyg"])
def test_both_scripts_run_and_learn(pyg):
    source = PATH.read_text()
    source = CHANGED.sub(r"\1\3", source) if pyg else source
    first, *_, last = run(source, "--molecules", "128", "--epochs", "4", "--layers", "2")
    assert last < 0.8 * first
