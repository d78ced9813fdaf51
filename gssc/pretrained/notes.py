"""Remarks on datasets by recipe, written by people: where the data of a run came from, and their licence.

A YAML file of ``recipe: {data: …, short: …, licence: …}``; ``data`` is the footnote of the recipe's numbers and a
section of the card of a published model, ``short`` the footnote where there is little room.
"""

from pathlib import Path

import yaml

from gssc.checks import check_choice, fail

KEYS = ("data", "short", "licence")


def read_notes(path: Path | None) -> dict[str, dict[str, str]]:
    """Remarks by recipe; none without a file."""
    if path is None:
        return {}
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        fail("notes", "a YAML file", f"{path} ({str(error).splitlines()[0]})")
    if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
        fail("notes", "recipe: {data: …, licence: …}", str(path))
    for recipe, entry in value.items():
        for key in entry:
            check_choice(f"notes, {recipe}", key, KEYS)
    words = {recipe: {key: str(text).split() for key, text in entry.items()} for recipe, entry in value.items()}
    return {str(recipe): {key: " ".join(text) for key, text in entry.items()} for recipe, entry in words.items()}
