"""From the runs of one recipe to the small folder of one model, with a card that tells what to know of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gssc.checks import check_choice, fail
from gssc.datasets.specs import OGB_ATOM
from gssc.files import WEIGHTS, json_bytes, load_tensors, replace_folder, tensor_bytes, weights_file
from gssc.pretrained.find import check_one_training
from gssc.pretrained.manifest import NAME, PLAIN, make_manifest, sha256
from gssc.readers import FINISHED, read_object, read_yaml
from gssc.report.provenance import duration, provenance, public_command, public_config
from gssc.report.published import published_gssc
from gssc.report.render import render
from gssc.report.runs import find_seed_folders
from gssc.report.variants import schedule
from gssc.tasks import Task, score_text
from gssc.train.loaded import load_run
from gssc.train.seeds import aggregate

KEYS = ("data", "short", "licence", "bound")  # of notes


@dataclass(frozen=True)
class PublishedModel:
    """What `publish` wrote: where, which seed, how large, and what users may pin."""

    folder: Path
    seed: int
    summary: dict[str, Any]
    size: int
    digest: str  # the sha256 of its manifest, which covers every byte


def publish(runs: str | Path, out: str | Path, notes: Path | None = None, *, replace: bool = False) -> PublishedModel:
    """Write a published model: of one seed, or of the one among several whose validation score is best.

    The folder has ``model.safetensors``, ``config.yaml``, ``dataset.json``, ``environment.json`` and ``summary.json``
    as the run wrote them (without the machine's folders), ``seeds.json`` (all seeds), ``README.md`` and
    ``manifest.json``. It appears complete or not at all; ``replace`` says whether a published model may be replaced.
    ``runs`` is a folder ``seed-N`` or holds several, ``out`` is called like the model, ``notes`` is for `read_notes`.
    """
    runs, out = Path(runs), Path(out)
    name = out.resolve().name
    if not PLAIN.fullmatch(name):
        fail("out", "a folder named by letters, digits, dots, dashes and underscores", str(out))
    if out.exists() and not (replace and (out / NAME).exists()):
        fail("out", "a new folder (--replace replaces a published model)", str(out))
    folders = find_seed_folders(runs)
    summaries = [_finished(folder) for folder in folders]
    trained = check_one_training([load_run(folder) for folder in folders], "seeds of one training")
    sign = 1.0 if summaries[0]["higher_is_better"] else -1.0
    seeds = zip(trained, summaries, strict=True)
    loaded, summary = max(seeds, key=lambda seed: (sign * seed[1]["validation"], -seed[1]["seed"]))
    all_seeds = aggregate(summaries) | {"published_seed": summary["seed"], "chosen_by": "validation"}
    folder, config = loaded.folder, public_config(loaded.recipe.to_dict())
    environment = read_object(folder / "environment.json") if (folder / "environment.json").exists() else {}
    environment["command"] = public_command(str(environment.get("command") or ""))
    told = {"config": config, "about": loaded.about, "environment": environment, "summary": summary, "seeds": all_seeds}
    card = model_card(name, read_notes(notes).get(loaded.recipe.name, {}), **told)
    weights, about = load_tensors(weights_file(folder) or folder / WEIGHTS[0])
    contents = {file: (folder / file).read_bytes() for file in ("dataset.json", "summary.json")} | {
        WEIGHTS[0]: tensor_bytes(weights, about | {"recipe": config}),
        "config.yaml": yaml.safe_dump(config, sort_keys=False).encode(),
        "environment.json": json_bytes(environment),
        "seeds.json": json_bytes(all_seeds),
        "README.md": card.encode(),
    }
    contents[NAME] = make_manifest(name, contents)
    replace_folder(out, contents)
    return PublishedModel(out, summary["seed"], summary, sum(map(len, contents.values())), sha256(contents[NAME]))


def _finished(folder: Path) -> dict[str, Any]:
    if not (folder / "summary.json").exists() or weights_file(folder) is None:
        fail("run", f"a finished one, with its summary.json and {WEIGHTS[0]}", str(folder))
    summary = read_object(folder / "summary.json", FINISHED)
    if not isinstance(summary.get("validation"), float):
        fail("run", "one with a validation score", str(folder))
    return summary


def model_card(name: str, notes: Mapping[str, str], **files: Mapping[str, Any]) -> str:
    """Markdown, from what the folder of the model holds, and the notes of the people who publish it.

    ``files`` are the recipe as ``config``, ``dataset.json`` as ``about``; ``environment``, ``summary`` and ``seeds``.
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
    of the card of a published model, ``short`` the footnote where there is little room, ``bound`` the best possible.
    """
    if path is None:
        return {}
    try:
        value = read_yaml(path)
        notes = {str(r): {k: " ".join(str(text).split()) for k, text in about.items()} for r, about in value.items()}
    except AttributeError:  # no mapping of mappings
        fail("notes", "recipe: {data: …, licence: …}", str(path))
    for recipe, entry in notes.items():
        for key in entry:
            check_choice(f"notes, {recipe}", key, KEYS)
    return notes
