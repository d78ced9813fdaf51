"""The README of a published model: what it predicts, how it came about, how good it is, what to beware of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gssc.checks import check_choice, fail
from gssc.datasets.specs import OGB_ATOM
from gssc.report.provenance import duration, provenance
from gssc.report.published import published_gssc
from gssc.report.render import render
from gssc.report.variants import schedule
from gssc.tasks import Task, score_text

KEYS = ("data", "short", "licence")  # of notes


def model_card(name: str, notes: Mapping[str, str], **files: Mapping[str, Any]) -> str:
    """Markdown, from what the folder of the model holds.

    Args:
        name: Of the model.
        notes: Of the people who publish: ``data`` (where the data come from) and ``licence``.
        **files: The recipe as ``config``, ``dataset.json`` as ``about``; ``environment``, ``summary`` and ``seeds``.
    """
    task = Task(**files["about"]["task"])
    return render(
        "card.md",
        name=name,
        notes=notes,
        **files,
        source=provenance(files["environment"]),
        task=task,
        schedule=schedule(files["config"], files["summary"]["epochs_run"]),
        published=published_gssc(str(files["summary"]["dataset"]), task.metric),
        ogb_features=list(OGB_ATOM),
        duration=duration,
        score_text=score_text,
    )


def read_notes(path: Path | None) -> dict[str, dict[str, str]]:
    """Remarks on datasets by recipe, as people wrote them into a YAML file; none without a file.

    It has ``recipe: {data: …, short: …, licence: …}``; ``data`` is the footnote of the recipe's numbers and a section
    of the card of a published model, ``short`` the footnote where there is little room.
    """
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
    in_one_line = {recipe: {key: " ".join(str(entry[key]).split()) for key in entry} for recipe, entry in value.items()}
    return {str(recipe): entry for recipe, entry in in_one_line.items()}
