"""The README of a published model: what it predicts, how it came about, how good it is, what to beware of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gssc.checks import check_choice, fail
from gssc.datasets.specs import OGB_ATOM
from gssc.report.provenance import duration, provenance, public_command
from gssc.report.published import published_gssc
from gssc.report.recorded import schedule
from gssc.tasks import Task, score_text

KEYS = ("data", "short", "licence")  # of notes
NOT_STATED = "not stated by whoever published this model"


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
    molecules = about["name"] in ("zinc-12k", "zinc-full") or about["node_features"] == list(OGB_ATOM)
    file, example = ("molecules.smi", '["CCO", "c1ccccc1O"]') if molecules else ("graphs.pt", "graphs")
    shorter = schedule(config, summary["epochs_run"])
    parts = [
        f"# {name}",
        f"{_sentence(about['name'], task)} {summary['parameters']:,} parameters, in PyTorch Geometric with gssc.",
        "## Use",
        f"```text\ngssc predict {name} {file} -o predictions.csv\n```",
        f'```text\nmodel = gssc.load_pretrained("{name}")\n'
        f'gssc.pretrained.open_model("{name}").predict({example})\n```',
        "## Scores",
        _scores(task, summary, seeds),
        "Selected and published by validation score alone; the test set was scored once per seed."
        + (f" The schedule was shorter than the recipe's: {shorter}." if shorter else ""),
        "## Training",
        "\n".join(
            [
                f"- command: `{public_command(source['command'])}`, seed {summary['seed']}",
                f"- recipe: {config['name']}, {config['train']['epochs']:,} epochs, the weights of epoch "
                f"{summary['epoch_selected']:,}; complete in `config.yaml`",
                f"- commit: `{source['commit']}`; hardware: {source['hardware']}; date: {source['date']}",
                f"- time of this seed: {duration(summary.get('train_seconds') or 0.0)} of training",
                *([f"- it began with the weights of `{start}`"] if (start := config["train"].get("start")) else []),
                *_teachers(summary),
            ]
        ),
        "## Data",
        f"{about['name']}. " + notes.get("data", f"Where its files came from: {NOT_STATED}."),
        "## Limits",
        _limits(about, molecules),
        "## Licence",
        notes.get("licence", f"Licence of weights and data: {NOT_STATED}."),
    ]
    return "\n\n".join(parts) + "\n"


def _teachers(summary: Mapping[str, Any]) -> list[str]:
    """Of a run that has learned from others, who they were and what they cost."""
    if not summary.get("teachers"):
        return []
    seeds, seconds = ", ".join(map(str, summary["teachers"])), duration(summary.get("teacher_seconds") or 0.0)
    return [
        f"- teachers: it has learned the mean prediction of models with the seeds {seeds}, {seconds} of training in all"
    ]


def _sentence(dataset: str, task: Task) -> str:
    several = f"the probabilities of {task.outputs} labels"
    what = {
        "regression": "one number" if task.outputs == 1 else f"{task.outputs} numbers",
        "multiclass": f"one of {task.outputs} classes",
        "binary": "the probability of one label" if task.outputs == 1 else several,
    }[task.kind]
    return f"Predicts {what} for each {task.level}, as in {dataset}."


def _scores(task: Task, summary: Mapping[str, Any], seeds: Mapping[str, Any]) -> str:
    arrow = "↑" if task.higher_is_better else "↓"
    count = len(seeds["seeds"])
    lines = [f"| {task.metric} {arrow} | validation | test |", "|---|---|---|"]
    lines.append(
        f"| this model (seed {summary['seed']}) | {score_text(summary['validation'])} | {score_text(summary['test'])} |"
    )
    if count > 1:
        cells = " | ".join(score_text(seeds[part]["mean"], seeds[part]["std"]) for part in ("validation", "test"))
        lines.append(f"| mean ± deviation of {count} seeds | {cells} |")
    published = published_gssc(str(summary["dataset"]), task.metric)
    if published is not None:
        unit = " %" if published.factor == 100 else ""
        lines.append(f"| GSSC as published in arXiv 2406.05815 | | {published.text}{unit} |")
    return "\n".join(lines)


def _limits(about: Mapping[str, Any], molecules: bool) -> str:
    text = (
        f"It knows graphs like those of {about['name']} and was tested on its test split alone: what it says of others"
        " is extrapolation. The deviation between seeds is part of any comparison; validation chose this one."
    )
    if about["name"] in ("zinc-12k", "zinc-full"):
        text += (
            " The target is a computed property, penalised logP, not a measurement. Molecules must consist of ZINC's 28"
            " types of atoms."
        )
    elif molecules:
        text += " Predictions are no substitute for an experiment, least of all for a decision about health."
    return text


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
