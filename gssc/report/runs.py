"""Run folders as they lie on disk: finished, unfinished or damaged.

Whatever is missing or cannot be read becomes a note that names the file; nothing here raises on the content of a run.
"""

import csv
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gssc.checks import fail, first_line
from gssc.config import with_defaults
from gssc.readers import LARGEST_LOG, SUMMARY, conform, is_number, parse_json, parse_yaml, read_bytes, unpacked, whole

SEED_FOLDER = re.compile(r"seed-(\d+)")
TEACHERS = "teachers"  # the folder of gssc.train.teachers, which needs PyTorch


@dataclass(frozen=True)
class SeedRun:
    """One folder ``seed-N``."""

    folder: Path
    seed: int | None
    config: dict[str, Any]  # the complete recipe as plain values; empty if unreadable
    environment: dict[str, Any]  # versions, commit, hardware, command, date
    dataset: dict[str, Any]  # name and task
    history: list[dict[str, Any]]  # one mapping per epoch, in order
    summary: dict[str, Any]  # of the finished run; empty before that
    notes: tuple[str, ...]  # what is missing or damaged, one line each

    @property
    def recipe(self) -> str:
        return str(self.config.get("name") or self.summary.get("recipe") or "unknown")

    @property
    def dataset_name(self) -> str:
        """By name; own data goes by the name of its file, which is no dataset of the paper whatever the recipe is."""
        if file := self.section("data").get("file"):
            return Path(str(file)).name
        named = self.section("data").get("dataset")
        return str(named or self.summary.get("dataset") or self.dataset.get("name") or "unknown")

    @property
    def task(self) -> dict[str, Any]:
        return _mapping(self.dataset.get("task"))

    @property
    def status(self) -> str:
        if self.summary:
            return "finished"
        if any("summary.json" in note for note in self.notes):
            return "damaged"
        last = self.history[-1]["epoch"] if self.history else 0
        planned = self.section("train").get("epochs", "?")
        return f"unfinished (epoch {last} of {planned})"

    def section(self, name: str) -> dict[str, Any]:
        """A section of the recipe."""
        return _mapping(self.config.get(name))


class Runs(NamedTuple):
    """All seeds that were found, and notes on what lies around them."""

    seeds: tuple[SeedRun, ...]
    notes: tuple[str, ...]


def read_runs(paths: Iterable[Path]) -> Runs:
    """Read seed folders, outputs of ``gssc train``, or folders of several of them; each seed folder once."""
    folders = {folder.resolve(): folder for path in paths for folder in find_seed_folders(path)}
    seeds = tuple(read_seed(folder) for folder in folders.values())
    by_out = group(seeds, lambda run: run.folder.parent)
    outside = [note for out, mine in by_out.items() for note in _compare_with_summary(out, mine)]
    return Runs(seeds, (*(note for run in seeds for note in run.notes), *outside))


def group(runs: Iterable[SeedRun], key: Callable[[SeedRun], Any]) -> dict[Any, list[SeedRun]]:
    """Runs by a key, in the order in which they come."""
    groups: dict[Any, list[SeedRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def find_seed_folders(path: Path) -> list[Path]:
    """The seed folders in or below a folder, or the folder itself, in order."""
    if not path.is_dir():
        fail("run", "an existing folder", str(path))
    if SEED_FOLDER.fullmatch(path.resolve().name):
        return [path]
    seeds = [below for below in path.rglob("seed-*") if below.is_dir() and SEED_FOLDER.fullmatch(below.name)]
    # A folder with a dot is what a command that was killed has left; teachers belong to the run that they are in.
    seeds = [seed for seed in seeds if not any(p[0] == "." or p == TEACHERS for p in seed.relative_to(path).parts)]
    if not seeds and any((path / name).is_file() for name in ("config.yaml", "metrics.jsonl")):
        return [path]  # a seed folder under another name
    if not seeds:
        fail("run", "a folder with seed-N folders, as gssc train writes it", str(path))
    return sorted(seeds, key=lambda folder: (folder.parent, int(folder.name[5:])))


def read_seed(folder: Path) -> SeedRun:
    """Read one seed folder, noting what cannot be read."""
    notes: list[str] = []
    config = _read(folder / "config.yaml", lambda raw: with_defaults(_mapping(parse_yaml(raw, "its text"))), notes)
    if not config and not notes:
        problem = "missing" if config is None else "damaged (no settings in it)"
        notes.append(f"{folder / 'config.yaml'}: {problem}")
    forms: dict[str, dict[str, Any]] = {"environment": {}, "dataset": {}, "summary": SUMMARY}
    objects = (_read(folder / f"{name}.json", partial(_parse_object, form), notes) for name, form in forms.items())
    environment, dataset, summary = objects
    recorded = folder / "metrics.csv.gz"  # of a run that was kept, see gssc.report.variants
    history = _read(recorded, _parse_table, notes) if recorded.exists() else _history(folder / "metrics.jsonl", notes)
    named, written = SEED_FOLDER.fullmatch(folder.resolve().name), (summary or {}).get("seed")
    seed = int(named.group(1)) if named else int(written) if is_number(written) else None
    contents = (config or {}, environment or {}, dataset or {}, history or [], summary or {})
    return SeedRun(folder, seed, *contents, tuple(notes))


def _read(path: Path, parse: Callable[[bytes], Any], notes: list[str]) -> Any | None:
    """What a file says; None where there is none, or where it is damaged, which becomes a note."""
    if not path.exists():
        return None
    try:
        return parse(read_bytes(path, LARGEST_LOG))
    except (EOFError, ValueError, zlib.error, csv.Error) as error:
        notes.append(f"{path}: damaged ({first_line(error)})")
        return None


def _parse_object(form: dict[str, Any], raw: bytes) -> dict[str, Any]:
    value: dict[str, Any] = parse_json(raw, "its text", form, finite=False)
    return value


def _parse_table(raw: bytes) -> list[dict[str, Any]]:
    """The epochs of a compressed table of numbers."""
    text = unpacked(raw, zlib.decompressobj(zlib.MAX_WBITS | 16), LARGEST_LOG).decode()
    rows = csv.DictReader(text.splitlines())
    table = [{key: int(t) if t.lstrip("-").isdecimal() else float(t) for key, t in row.items() if t} for row in rows]
    conform(table, [{"epoch": whole(1)}], "its table")
    return table


def _history(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The epochs of metrics.jsonl; a repeated epoch (after a resume) counts as last written."""
    epochs: dict[int, dict[str, Any]] = {}
    broken = []
    lines = _read(path, lambda raw: raw.decode(errors="replace").splitlines(), notes) or []
    for number, line in enumerate(lines, start=1):
        try:
            epoch = parse_json(line, "its text", {"epoch": whole()}, finite=False)
            epochs[int(epoch["epoch"])] = epoch
        except ValueError:
            broken.append(number)
    if broken:
        which = f"line {broken[0]}" if len(broken) == 1 else f"{len(broken)} lines, the first is {broken[0]}"
        notes.append(f"{path}: damaged ({which} of {len(lines)})")
    return [epochs[number] for number in sorted(epochs)]


def _compare_with_summary(out: Path, runs: list[SeedRun]) -> list[str]:
    """Notes where ``OUT/summary.json`` and the seeds beside it tell different stories."""
    notes: list[str] = []
    path = out / "summary.json"
    summary = _read(path, partial(_parse_object, {}), notes) or {}
    listed = [str(seed) for seed in seeds] if isinstance(seeds := summary.get("seeds"), list) else []
    scores = {str(run.seed): run.summary["test"] for run in runs if run.summary}
    unfinished = {str(run.seed) for run in runs if not run.summary}
    # A seed that was not asked for is no fault; one that is gone or has lost its score is.
    gone = [seed for seed in listed if seed in unfinished or not (out / f"seed-{seed}").is_dir()]
    if gone:
        notes.append(f"{path}: lists seed {', '.join(gone)}, of which there is no score")
    elif set(listed) == set(scores):
        mean, numbers = _mapping(summary.get("test")).get("mean"), [one for one in scores.values() if is_number(one)]
        if is_number(mean) and numbers and not math.isclose(mean, float(np.mean(numbers)), rel_tol=1e-6):
            notes.append(f"{path}: its mean {mean:g} is not that of its seeds")
    return notes


def _mapping(value: object) -> dict[str, Any]:
    return {str(key): entry for key, entry in value.items()} if isinstance(value, Mapping) else {}
