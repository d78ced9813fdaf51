"""A notebook without Jupyter: its cells run one after another, and as a page of Markdown.

python -m tools.notebook docs/tutorial.ipynb     # runs it and keeps what it prints and draws
"""

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock


def run_cells(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its code cells: what they print, and the figures that they show."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook, "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), mock.patch.object(plt, "show"):  # figures are collected below
            exec(compile(source(cell), f"cell {number}", "exec"), names)
        outputs: list[dict[str, Any]] = []
        if text := printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
        for figure in map(plt.figure, plt.get_fignums()):
            drawn = io.BytesIO()
            figure.savefig(drawn, dpi=110, bbox_inches="tight", metadata={"Software": None})
            data = {"image/png": base64.b64encode(drawn.getvalue()).decode()}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        plt.close("all")
        cell |= {"outputs": outputs, "execution_count": number}
    return notebook


def cells(notebook: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Its cells of one kind, code or markdown."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def read_notebook(path: Path) -> str:
    """The notebook as Markdown: text, code, what was printed, pictures as data."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                parts.append(f"![figure](data:image/png;base64,{output['data']['image/png']})")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Run notebooks and write them back with their outputs."""
    for path in map(Path, sys.argv[1:]):
        notebook = run_cells(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
