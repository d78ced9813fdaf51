"""Tables in Markdown."""

from gssc.report.render import escape_cell


def heading(*cells: str) -> str:
    """The first two lines of a table."""
    return line(*cells) + "\n|" + "---|" * len(cells)


def line(*cells: str) -> str:
    """A line of a table."""
    return "| " + " | ".join(map(escape_cell, cells)) + " |"
