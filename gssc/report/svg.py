"""Matplotlib figures as SVG elements that live inside a page and take their colours from its style sheet.

Figures are drawn in placeholder colours, one for each role; these become CSS variables, so that one picture is legible
in light and in dark.
"""

import html
import io
import math
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

INK, GRID = "#010203", "#010204"  # as in page.mplstyle
SERIES = tuple(f"#01020{number}" for number in "56789a")
ROLES = {INK: "currentColor", GRID: "var(--line)", **{c: f"var(--series-{i})" for i, c in enumerate(SERIES, start=1)}}
WIDTH = 10.4  # inches


def drawing_style() -> AbstractContextManager[None]:
    """Figures made inside have the style of the page."""
    from matplotlib import style

    return style.context(Path(__file__).with_name("page.mplstyle"))


def panels(count: int, columns: int, height: float, width: float = WIDTH, above: float = 0.0) -> tuple[Any, list[Any]]:
    """A figure and its axes, row by row; in inches: height of a row, width of the figure, room above all rows."""
    # Not through pyplot, which keeps every figure and picks a backend for screens.
    from matplotlib.figure import Figure

    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width, height * rows + above), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def saved(figure: Any, kind: str, **options: Any) -> bytes:
    """The file of a figure, ``"svg"`` or ``"png"``: the same bytes every time."""
    written = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(written, format=kind, metadata=metadata, **options)
    return written.getvalue()


def drawn(figure: Any, colours: Mapping[str, str]) -> str:
    """The SVG file of a figure drawn in `drawing_style`, with these colours for the placeholders."""
    # A figure may hold a label of any length: the box follows what was drawn.
    text = saved(figure, "svg", bbox_inches="tight").decode()
    for placeholder, colour in colours.items():
        text = text.replace(placeholder, colour)
    return text


def to_svg(figure: Any, identity: str, description: str) -> str:
    """The ``<svg>`` element of a figure drawn in `drawing_style`, for those who cannot see it with a description.

    Every id inside begins with ``identity``, different for each figure of a page.
    """
    text = drawn(figure, ROLES)
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'\bid="', f'id="{identity}-', text)
    text = text.replace("xlink:href=", "href=").replace('href="#', f'href="#{identity}-')
    text = text.replace("url(#", f"url(#{identity}-")
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(description, quote=True)}"', 1)
