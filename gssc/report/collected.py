"""Results that are kept: the small part of a run folder, under ``results/RECIPE/VARIANT/seed-N``.

Kept are ``summary.json``, ``config.yaml``, ``environment.json``, ``dataset.json`` and ``metrics.csv.gz`` (the epochs,
to five digits), and for all seeds ``run.json``: command, commit, hardware, date, schedule, time, remarks. Weights,
checkpoints and predictions are not.
"""

import csv
import gzip
import io
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gssc.checks import fail
from gssc.files import write_atomic
from gssc.recipes import find_recipe, recipe_names
from gssc.report.origin import ORIGIN, command_today, duration, origin, public_command, public_config, schedule
from gssc.report.runs import SeedRun, is_number, read_runs, read_seed
from gssc.report.variants import Variant, differences, group_variants

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
DIGITS = 5
# Of the epochs; what can be computed from the rest is not kept.
LEFT_OUT = ("graphs_per_second",)
COPIED = ("summary.json", "dataset.json")


@dataclass(frozen=True)
class Collected:
    """One setting of a recipe that was run and kept."""

    recipe: str
    name: str
    variant: Variant
    about: dict[str, Any]

    @property
    def ablation(self) -> bool:
        return self.name.startswith("ablation")

    @property
    def rival(self) -> bool:
        """Whether it is another model, trained beside GSSC."""
        return self.variant.runs[0].section("model").get("glob", "gssc") != "gssc"

    @property
    def schedule(self) -> str:
        """How much of the recipe's epochs, where it is not all."""
        return _schedule(self.variant)

    @property
    def time(self) -> str:
        """Per seed, and how many ran at once."""
        seconds = self.about.get("seconds_per_seed")
        at_once = self.about.get("seeds_at_once", 1)
        if not is_number(seconds):
            return ""
        return duration(seconds) + (f" ({at_once} seeds at once)" if at_once > 1 else "")

    @property
    def command(self) -> str:
        """What runs it again with the recipe as it is now."""
        return command_today(self.said("command"), self.variant.overrides)

    def said(self, key: str) -> str:
        """An entry of ``run.json`` as text."""
        return str(self.about.get(key) or "")


def collect(runs: Sequence[Path], results: Path, name: str = "main", remark: str = "") -> list[Path]:
    """Keep finished runs; returns the folders that were written, each complete or not at all.

    Args:
        runs: Outputs of ``gssc train``; the seeds of one recipe in them must be runs of one setting.
        results: Folder of all results; ``RECIPE/NAME`` below it is replaced.
        name: ``main`` for the result of a recipe, ``ablation-…`` for what belongs on the page of ablations.
        remark: What a reader must know of these runs.
    """
    if not NAME.fullmatch(name):
        fail("--as", "a name of small letters, digits, dots and dashes", repr(name))
    written: dict[Path, tuple[str, Variant]] = {}
    for recipe, variants in group_variants(read_runs(runs).seeds).items():
        twice = [variant for variant in variants if variant.folder]
        if twice and len({variant.overrides for variant in variants}) == 1:
            folders = ", ".join(variant.folder for variant in twice)
            fail("runs", "every seed once", f"{recipe}: the same seed of the same setting in {folders}")
        if len(variants) > 1:
            labels = "; ".join(variant.label for variant in variants)
            fail("runs", "runs of one setting of each recipe (call the command once for each)", f"{recipe}: {labels}")
        (variant,) = variants
        if variant.status != "finished":
            fail("runs", "finished runs", f"{recipe}: {variant.status}")
        # A recipe on other data than its own is another result.
        out = results / re.sub(r"[^A-Za-z0-9._-]+", "-", recipe) / name
        if out in written:
            fail("runs", "recipes and data with names that differ", f"{written[out][0]!r} and {recipe!r}")
        written[out] = recipe, variant
    for out, (_, variant) in written.items():
        _replace(out, variant, remark)
    return list(written)


def _schedule(variant: Variant) -> str:
    done = [run.summary.get("epochs_run") for run in variant.finished if run.summary]
    return schedule(variant.runs[0].config, min((n for n in done if isinstance(n, int)), default=None))


def read_collected(results: Path) -> list[Collected]:
    """All that was kept, by recipe, ``main`` first."""
    found = []
    for folder in sorted(results.glob("*/*"), key=lambda path: (path.parent.name, path.name != "main", path.name)):
        seeds = sorted(folder.glob("seed-*"), key=lambda path: int(path.name[5:]) if path.name[5:].isdecimal() else 0)
        runs = tuple(read_seed(seed) for seed in seeds if seed.is_dir())
        if not runs or folder.name.startswith("."):  # what a command that was killed has left
            continue
        for run in runs:
            if run.notes:
                fail("results", "intact files", run.notes[0])
        recipe = folder.parent.name
        base = find_recipe(recipe).to_dict() if recipe in recipe_names() else runs[0].config
        variant = Variant(recipe, differences(runs[0].config, base), runs)
        found.append(Collected(recipe, folder.name, variant, _about(folder / "run.json")))
    return found


def _about(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail("results", "a JSON file", f"{path} ({str(error).splitlines()[0]})")
    return dict(value) if isinstance(value, Mapping) else fail("results", "an object", str(path))


def _replace(out: Path, variant: Variant, remark: str) -> None:
    mark = uuid.uuid4().hex
    temporary, before = (out.parent / f".{out.name}.{mark}.{ending}" for ending in ("tmp", "old"))
    try:
        for run in variant.runs:
            for file, data in _kept(run).items():
                write_atomic(temporary / f"seed-{run.seed}" / file, data)
        write_atomic(temporary / "run.json", _json(_description(variant, remark)))
        if out.exists():
            os.rename(out, before)
        os.rename(temporary, out)
    except OSError as error:
        if before.exists() and not out.exists():
            os.rename(before, out)
        fail("results", "a folder that can be written", f"{out} ({error.strerror})")
    finally:
        for folder in (temporary, before):
            shutil.rmtree(folder, ignore_errors=True)


def _kept(run: SeedRun) -> dict[str, bytes]:
    environment = dict(run.environment)
    if environment:
        environment["command"] = public_command(str(environment.get("command") or ""))
    files = {name: (run.folder / name).read_bytes() for name in COPIED if (run.folder / name).exists()}
    files["config.yaml"] = yaml.safe_dump(public_config(run.config), sort_keys=False).encode()
    return files | {"environment.json": _json(environment), "metrics.csv.gz": compact(run.history)}


def _description(variant: Variant, remark: str) -> dict[str, Any]:
    origins = [origin(run.environment) for run in variant.runs]
    said = {key: "; ".join(dict.fromkeys(one[key] for one in origins if one[key])) for key in ORIGIN}
    said["command"] = "; ".join(dict.fromkeys(public_command(one["command"]) for one in origins if one["command"]))
    jobs = re.search(r"--jobs[= ](\d+)", said["command"])
    parts = [variant.spread(key) for key in ("prepare_seconds", "train_seconds")]
    return {
        "recipe": variant.recipe,
        "overrides": list(variant.overrides),
        "seeds": [run.seed for run in variant.runs],
        **said,
        "schedule": _schedule(variant) or "the recipe's",
        "seconds_per_seed": round(sum(part.mean for part in parts if part), 1) if any(parts) else None,
        "seeds_at_once": min(int(jobs[1]), len(variant.runs)) if jobs else 1,
        "remarks": remark,
    }


def compact(history: Sequence[Mapping[str, Any]]) -> bytes:
    """The epochs as a compressed table, numbers to five digits; the same content gives the same bytes."""
    columns = list(dict.fromkeys(key for line in history for key in line if key not in LEFT_OUT))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for line in history:
        table.writerow(f"{v:.{DIGITS}g}" if isinstance(v := line.get(key), float) else v for key in columns)
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
