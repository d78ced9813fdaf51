"""The README of a published model: what it predicts, how it came about, how good it is, what to beware of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gssc.checks import check_choice, fail
from gssc.datasets.specs import OGB_ATOM
from gssc.report.provenance import duration, provenance, public_command
from gssc.report.published import published_gssc
from gssc.report.render import render
from gssc.report.variants import schedule
from gssc.tasks import Task, score_text

KEYS = ("data", "short", "licence")  # of notes


def model_card(
    name: str,
    config: Mapping[str, Any],
    about: Mapping[str, Any],
    environment: Mapping[str, Any],
    summary: Mapping[str, Any],
    seeds: Mapping[str, Any],
    notes: Mapping[str, str],
) -> str:
    """Markdown, from what the run folder holds.

    Args:
        name: Of the model.
        config: The complete recipe.
        about: ``dataset.json``.
        environment: ``environment.json``.
        summary: ``summary.json`` of the seed that is published.
        seeds: The summary of all seeds.
        notes: Of the people who publish: ``data`` (where the data come from) and ``licence``.
    """
    task, source = Task(**about["task"]), provenance(environment)
    return render(
        "card.md",
        name=name,
        config=config,
        about=about,
        summary=summary,
        seeds=seeds,
        notes=notes,
        task=task,
        source=source,
        predicted=_predicted(task),
        command=public_command(source["command"]),
        schedule=schedule(config, summary["epochs_run"]),
        published=published_gssc(str(summary["dataset"]), task.metric),
        zinc=("zinc-12k", "zinc-full"),
        atoms=list(OGB_ATOM),
        duration=duration,
        score_text=score_text,
    )


def _predicted(task: Task) -> str:
    several = f"the probabilities of {task.outputs} labels"
    return {
        "regression": "one number" if task.outputs == 1 else f"{task.outputs} numbers",
        "multiclass": f"one of {task.outputs} classes",
        "binary": "the probability of one label" if task.outputs == 1 else several,
    }[task.kind]


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
    words = {recipe: {key: str(text).split() for key, text in entry.items()} for recipe, entry in value.items()}
    return {str(recipe): {key: " ".join(text) for key, text in entry.items()} for recipe, entry in words.items()}
