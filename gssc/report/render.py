"""Text from the templates of ``gssc/templates``; values are escaped for HTML, with a filter for Markdown and LaTeX."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "×": "$\\times$",
    "−": "$-$",
    "–": "--",
    "²": "$^2$",
    "↑": "$\\uparrow$",
    "↓": "$\\downarrow$",
}


def render(template: str, **values: Any) -> str:
    """The text of a template with these values."""
    environment = Environment(
        loader=PackageLoader("gssc"),
        autoescape=select_autoescape(("html",)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"cell": escape_cell, "latex": escape_latex}
    return environment.get_template(template).render(values).rstrip() + "\n"


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([headings, *rows])
    return written.getvalue()


def escape_cell(text: object) -> str:
    """Text that stays in its cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(LATEX.get(letter, letter) for letter in text)
