"""Documents in which a program writes some parts and people write the rest.

What stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is replaced; all else is kept
to the last letter (ends of lines may become a single newline).
"""

import re
from collections.abc import Mapping

from gssc.checks import fail


def begin(name: str) -> str:
    """The line before a part."""
    return f"<!-- begin {name} -->"


def end(name: str) -> str:
    """The line after a part."""
    return f"<!-- end {name} -->"


def fill(text: str, parts: Mapping[str, str], where: str, titles: Mapping[str, str] | None = None) -> str:
    """The text with these parts in their places.

    Args:
        text: The document as it is.
        parts: By name, what is to stand between its marks.
        where: How an error calls the document.
        titles: By name, a heading under which the part goes to the end of the document if it has no place in it yet; a
            part without one must have its place.
    """
    for name, content in parts.items():
        block = f"{begin(name)}\n{content.strip()}\n{end(name)}"
        place = re.compile(re.escape(begin(name)) + r"\n.*?" + re.escape(end(name)), flags=re.DOTALL)
        if len(found := place.findall(text)) > 1 or (not found and begin(name) in text):
            fail(where, f"one {begin(name)} with its {end(name)}", f"{len(found)} such pairs")
        if found:
            text = text.replace(found[0], block)
        elif titles is not None and name in titles:
            text = f"{text.rstrip()}\n\n## {titles[name]}\n\n{block}\n"
        else:
            fail(where, f"a line {begin(name)}", "none")
    return text
