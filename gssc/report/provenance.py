"""Where a number comes from: command, commit, hardware, date, time. In words, without a machine's paths."""

import itertools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gssc.files import write_files
from gssc.report.render import render
from gssc.report.runs import read_runs
from gssc.report.tables import our_row
from gssc.report.variants import Variant, group_variants

PROVENANCE = ("command", "commit", "hardware", "date")
# Options that say where a run lies or how it went on, and cannot change its result.
PLACES = ("--data-root", "--out", "-o", "--pack", "--cache", "--time-limit", "--device")
FLAGS = ("--resume", "--finish", "--quiet")
# Options whose file matters, but not where it lies.
FILES = ("--data", "--csv", "data.file")


def provenance(environment: Mapping[str, Any]) -> dict[str, str]:
    """Command, commit, hardware and date, as far as an ``environment.json`` tells."""
    hardware = environment.get("hardware")
    if isinstance(hardware, Mapping):
        device, cpu = str(hardware.get("device") or ""), str(hardware.get("cpu") or "")
        hardware = cpu if device in ("", "cpu") and cpu else device
    told = {key: str(environment.get(key) or "") for key in PROVENANCE}
    # A + at the end says that files were changed since that commit.
    commit = told["commit"][:10] + ("+" if told["commit"][10:].endswith("+") else "")
    return told | {"commit": commit, "date": told["date"][:10], "hardware": str(hardware or "")}


def public_command(text: str) -> str:
    """A command as another machine would give it: without the folders of this one."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    public: list[str] = []
    for before, word in itertools.pairwise(["", *words]):
        option, equals, value = word.partition("=")
        if before in PLACES or option in (*PLACES, *FLAGS):
            continue
        # A recipe of one's own is given by its file.
        if before in FILES or (word.endswith((".yaml", ".yml")) and not equals):
            word = Path(word).name
        public.append(f"{option}={_public_place(option, value)}" if equals else word)
    return shlex.join(public)


def _public_place(option: str, place: str) -> str:
    """Without the folders of a machine: files by name; a start by name, URL, or folder below the present one."""
    path = Path(place)
    return path.name if option in FILES or (option == "train.start" and path.is_absolute()) else place


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe whose own data go by the name of their file, and likewise the weights it begins with."""
    public = dict(config)
    for section, key in (("data", "file"), ("train", "start")):
        values = config.get(section)
        if isinstance(values, Mapping) and values.get(key):
            public[section] = dict(values) | {key: _public_place(f"{section}.{key}", str(values[key]))}
    return public


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def write_results(
    path: Path, runs: Iterable[Path], *, before: str = "# Results\n", footnotes: Mapping[str, str] | None = None
) -> None:
    """Write the Markdown table of finished runs, below the text ``before``; the file appears complete or not at all."""
    variants = [variant for mine in group_variants(read_runs(runs).seeds).values() for variant in mine]
    write_files(path.parent, {path.name: f"{before.rstrip()}\n\n{results_markdown(variants, footnotes)}".encode()})


def results_markdown(variants: Sequence[Variant], footnotes: Mapping[str, str] | None = None) -> str:
    """A line for each variant with a finished seed, in the units of the paper.

    Args:
        variants: What to list; unfinished ones are left out, and said to be.
        footnotes: By recipe: what a reader must know beside the number.
    """
    finished = [variant for variant in variants if variant.finished]
    recipes = dict.fromkeys(variant.recipe for variant in finished)
    return render(
        "results.md",
        finished=finished,
        unfinished=[f"{variant.recipe} ({variant.label})" for variant in variants if not variant.finished],
        footnotes=footnotes,
        noted=[recipe for recipe in recipes if recipe in (footnotes or {})],
        our_row=our_row,
        origin_of=_origin,
        time_per_seed=time_per_seed,
    )


def _origin(variant: Variant) -> list[str]:
    """Command, commit, hardware and date of the finished seeds, each as often as it differs."""
    by_run = [provenance(run.environment) for run in variant.finished]
    by_key = {key: dict.fromkeys(one[key] for one in by_run if one[key]) for key in PROVENANCE}
    return [
        "; ".join(f"`{text}`" if key in ("command", "commit") else text for text in texts)
        for key, texts in by_key.items()
    ]


def time_per_seed(variant: Variant) -> str:
    """Mean time of preparing and training, over seeds."""
    parts = [variant.spread(key) for key in ("prepare_seconds", "train_seconds")]
    return duration(sum(part.mean for part in parts if part)) if any(parts) else ""
