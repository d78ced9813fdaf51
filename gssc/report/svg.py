"""Matplotlib figures as SVG elements that live inside a page and take their colours from its style sheet.

Figures are drawn in placeholder colours, one for each role; these become CSS variables, so that one picture is legible
in light and in dark.
"""

import html
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gssc.checks import fail

INK, GRID = "#010203", "#010204"
SERIES = tuple(f"#01020{number}" for number in "56789a")
ROLES = {INK: "currentColor", GRID: "var(--line)", **{c: f"var(--series-{i})" for i, c in enumerate(SERIES, start=1)}}


def need_matplotlib(command: str = "gssc report") -> None:
    """Fail with what to install where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        fail(command, "the package matplotlib (pip install 'gssc[plot]')", "no such package")
    del mpl


@contextmanager
def drawing_style() -> Iterator[None]:
    """Figures made inside have thin lines, real text and no background, the same bytes every time."""
    import matplotlib as mpl

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "gssc",
        "text.parse_math": False,  # labels are settings, not formulas
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "axes.linewidth": 0.7,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "legend.frameon": False,
        "lines.linewidth": 1.2,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    }
    with mpl.rc_context(settings):
        yield


def drawn(figure: Any, colours: Mapping[str, str]) -> str:
    """The SVG file of a figure drawn in `drawing_style`, with these colours for the placeholders."""
    written = io.StringIO()
    # A figure may hold a label of any length: the box follows what was drawn.
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    for placeholder, colour in colours.items():
        text = text.replace(placeholder, colour)
    return text


def to_svg(figure: Any, identity: str, description: str) -> str:
    """The ``<svg>`` element of a figure.

    Args:
        figure: A matplotlib figure drawn in `drawing_style`.
        identity: Prefix of every id inside, different for each figure of a page.
        description: What a reader who cannot see it should know.
    """
    text = drawn(figure, ROLES)
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'\bid="', f'id="{identity}-', text)
    text = text.replace("xlink:href=", "href=").replace('href="#', f'href="#{identity}-')
    text = text.replace("url(#", f"url(#{identity}-")
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(description, quote=True)}"', 1)
