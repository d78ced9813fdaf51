"""Seeds of one setting, run or kept of earlier runs: the shipped recipe, or a variant named by what it changes."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gssc.checks import fail
from gssc.config import SECTIONS
from gssc.datasets.specs import SPECS
from gssc.readers import is_number, read_object
from gssc.recipes import find_recipe, known_recipes, recipe_variants
from gssc.report.published import Published, published_gssc
from gssc.report.runs import SeedRun, group, read_runs
from gssc.tasks import METRICS
from gssc.train.checkpoint import HABITS


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1) over seeds; the deviation of one value is 0."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """The spread of some values, none of no values."""
        numbers = [float(value) for value in values]
        if not numbers:
            return None
        if not all(map(math.isfinite, numbers)):
            return cls(sum(numbers) / len(numbers), math.nan, len(numbers))
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0, len(numbers))

    def times(self, factor: float) -> "Spread":
        """In other units."""
        return Spread(self.mean * factor, self.std * factor, self.n)


@dataclass(frozen=True)
class Variant:
    """Runs that differ by their seed alone."""

    recipe: str
    overrides: tuple[str, ...]  # what differs from the shipped recipe, as section.key=value
    runs: tuple[SeedRun, ...]  # one per seed
    folder: str = ""  # set where the same seed of the same setting was run in several folders

    @property
    def label(self) -> str:
        """What to call it beside other variants of the recipe."""
        named = {tuple(sorted(variant.changes)): name for name, variant in recipe_variants(self.recipe).items()}
        name = named.get(tuple(sorted(self.overrides))) or ", ".join(self.overrides) or "as shipped"
        return f"{name} ({self.folder})" if self.folder else name

    @property
    def finished(self) -> tuple[SeedRun, ...]:
        return tuple(run for run in self.runs if run.summary)

    @property
    def status(self) -> str:
        """Finished, or which seeds are not."""
        unfinished = group((run for run in self.runs if not run.summary), lambda run: run.status)
        said = [
            f"seed{'s' * (len(runs) > 1)} {', '.join(str(run.seed) for run in runs)} {status}"
            for status, runs in unfinished.items()
        ]
        return "; ".join(said) or "finished"

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset_name

    @property
    def metric(self) -> str:
        for run in self.runs:
            if name := run.summary.get("metric") or run.task.get("metric"):
                return str(name)
        return SPECS[self.dataset].task.metric if self.dataset in SPECS else "metric"

    @property
    def higher_is_better(self) -> bool:
        told = [run.summary.get("higher_is_better") for run in self.finished]
        return next((value for value in told if isinstance(value, bool)), METRICS.get(self.metric, True))

    @property
    def title(self) -> str:
        """Recipe, and dataset where it has another name."""
        return self.recipe if self.recipe == self.dataset else f"{self.recipe} on {self.dataset}"

    @property
    def metric_text(self) -> str:
        """Metric with direction and unit."""
        return f"{self.metric} {'↑' if self.higher_is_better else '↓'}{' (%)' if self.factor == 100 else ''}"

    @property
    def schedule(self) -> str:
        """How much of the recipe's epochs the seeds have run, where it is not all."""
        epochs = [number for run in self.finished if isinstance(number := run.summary.get("epochs_run"), int)]
        return schedule(self.runs[0].config, min(epochs, default=None))

    def spread(self, key: str) -> Spread | None:
        """Of a number in the summaries, e.g. ``"parameters"``."""
        return Spread.of(run.summary[key] for run in self.finished if is_number(run.summary.get(key)))

    def printed(self, key: str) -> Spread | None:
        """Of a score, ``"test"`` or ``"validation"``, in the units of the print."""
        spread = self.spread(key)
        return spread.times(self.factor) if spread else None

    @property
    def recipe_protocols(self) -> set[Any]:
        """The names of the protocols of evaluation that decided about the seeds' results."""
        return {run.summary.get("protocol") for run in self.finished}

    @property
    def factor(self) -> float:
        """From our units to those of the print: 100 where the paper has percent."""
        published = self.published_gssc()
        return published.factor if published else 1.0

    def published_gssc(self) -> Published | None:
        """The paper's own result for this dataset and metric."""
        return published_gssc(self.dataset, self.metric)


@dataclass(frozen=True, kw_only=True)
class Recorded(Variant):
    """One setting of a recipe that was run and kept: ``name`` is its folder, ``about`` its ``run.json``."""

    name: str
    about: dict[str, Any]

    @property
    def ablation(self) -> bool:
        return self.name.startswith("ablation")

    def said(self, key: str) -> str:
        """An entry of ``run.json`` as text."""
        return str(self.about.get(key) or "")


def schedule(config: Mapping[str, Any], run: int | None = None) -> str:
    """``"200 of 2,000 epochs"`` where a run is shorter or longer than the shipped recipe of its name; else nothing.

    Where it was stopped after ``run`` epochs of its own schedule, that is said too.
    """
    name, train = config.get("name"), config.get("train")
    epochs = train.get("epochs") if isinstance(train, Mapping) else None
    if name not in known_recipes() or not isinstance(epochs, int):
        return ""
    full = find_recipe(str(name)).train.epochs
    if run is not None and run < epochs:
        return f"stopped after {run:,} of {epochs:,} epochs" + (f"; the recipe has {full:,}" if epochs != full else "")
    return "" if epochs == full else f"{epochs:,} of {full:,} epochs"


def group_variants(runs: Iterable[SeedRun]) -> dict[str, list[Variant]]:
    """Variants by recipe (``RECIPE on DATASET`` where it is run on another dataset): as shipped first.

    Seeds of one setting are taken together over all folders unless one of them occurs twice; then each folder stands
    for itself.
    """
    shipped = {name: find_recipe(name).data.dataset for name in known_recipes()}

    def task(run: SeedRun) -> str:
        elsewhere = run.dataset_name != shipped.get(run.recipe, run.dataset_name)
        return f"{run.recipe} on {run.dataset_name}" if elsewhere else run.recipe

    return {name: _variants(mine) for name, mine in sorted(group(runs, task).items())}


def differences(run: SeedRun, base: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """What the complete recipe of a run changes in another, as ``section.key=value``, but for `HABITS`."""
    return tuple(
        f"{section}.{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        for section in SECTIONS
        for key, value in run.section(section).items()
        if key not in base[section] or base[section][key] != value
        if section != "train" or key not in HABITS
    )


def _variants(runs: Sequence[SeedRun]) -> list[Variant]:
    recipe = runs[0].recipe
    base = find_recipe(recipe).to_dict() if recipe in known_recipes() else _common([run for run in runs if run.config])
    by_setting = group(runs, lambda run: differences(run, base) if run.config else ("unknown settings",))
    variants = []
    for overrides, mine in sorted(by_setting.items(), key=lambda item: (len(item[0]), item[0])):
        by_folder = {"": sorted(mine, key=lambda run: run.seed or 0)}
        if len({run.seed for run in mine}) < len(mine):
            by_folder = group(mine, lambda run: str(run.folder.parent))
        variants += [Variant(recipe, overrides, tuple(inside), folder) for folder, inside in by_folder.items()]
    return variants


def _common(runs: Sequence[SeedRun]) -> dict[str, dict[str, Any]]:
    """The settings that all runs of a recipe of one's own share: what differs between them names the variants."""
    shared = {name: dict(runs[0].section(name)) if runs else {} for name in SECTIONS}
    for run in runs:
        for name, section in shared.items():
            shared[name] = {key: value for key, value in section.items() if run.section(name).get(key) == value}
    return shared


def read_recorded(results: Path) -> list[Recorded]:
    """All that was kept below ``results/RECIPE/NAME``, by recipe, ``main`` first.

    A folder ``seed-N`` there has ``summary.json``, ``config.yaml``, ``environment.json``, ``dataset.json`` and
    ``metrics.csv.gz`` (the epochs, to five digits); ``run.json``, of all seeds, has command, commit, hardware, date,
    schedule, time and remarks.
    """
    recorded = []
    # A folder with a dot is what a command that was killed has left.
    folders = {seed.parent for seed in results.glob("*/*/seed-*") if not seed.parent.name.startswith(".")}
    for folder in sorted(folders, key=lambda path: (path.parent.name, path.name != "main", path.name)):
        runs, notes = read_runs([folder])
        if notes:
            fail("results", "intact files", notes[0])
        recipe = folder.parent.name
        overrides = differences(runs[0], find_recipe(recipe).to_dict()) if recipe in known_recipes() else ()
        about = read_object(folder / "run.json")
        recorded.append(Recorded(recipe, overrides, runs, name=folder.name, about=about))
    return recorded
