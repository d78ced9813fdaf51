"""The tutorial runs from top to bottom, and prints and draws what it shows."""

import copy
import json
import re
from pathlib import Path

import pytest

from tools.notebook import cells, read_notebook, run_cells

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.ipynb"


def printed(notebook: dict) -> list[str]:
    texts = (output["text"] for cell in cells(notebook, "code") for output in cell["outputs"] if "text" in output)
    return "".join("".join(text) for text in texts).splitlines()


def drawn(notebook: dict) -> list[int]:
    """How many figures each cell shows."""
    return [sum("data" in output for output in cell["outputs"]) for cell in cells(notebook, "code")]


def test_the_tutorial():
    pytest.importorskip("networkx")
    kept = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    assert (kept["nbformat"], len({cell["id"] for cell in kept["cells"]})) == (4, len(kept["cells"]))
    done = run_cells(copy.deepcopy(kept))
    words = [[re.sub(r"[\d.\s]+", " ", line) for line in printed(notebook)] for notebook in (done, kept)]
    assert words[0] == words[1]  # numbers differ between machines
    assert drawn(done) == drawn(kept)
    for notebook in (done, kept):
        text = "\n".join(printed(notebook))
        alone, ours = (float(number) for number in re.findall(r"off by ([\d.]+) edges", text))
        assert ours < alone / 2
        assert "24 with gssc, 3 without" in text


def test_as_a_page(tmp_path):
    text, code = {"cell_type": "markdown", "source": ["# A\n", "b"]}, {"cell_type": "code", "source": ["c"]}
    shown = [{"text": ["d\n"]}, {"data": {"image/png": "ZQ=="}}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [text, code | {"outputs": shown}]}))
    page = "# A\nb\n\n```python\nc\n```\n\n```text\nd\n```\n\n![figure](data:image/png;base64,ZQ==)\n"
    assert read_notebook(tmp_path / "a.ipynb") == page
