"""Results that were kept of runs, as ``results/RECIPE/VARIANT/seed-N`` with a ``run.json`` for all seeds.

A seed folder has ``summary.json``, ``config.yaml``, ``environment.json``, ``dataset.json`` and ``metrics.csv.gz`` (the
epochs, to five digits); ``run.json`` has command, commit, hardware, date, schedule, time and remarks.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gssc.checks import fail
from gssc.files import read_object
from gssc.recipes import find_recipe, recipe_names
from gssc.report.runs import read_runs
from gssc.report.variants import Variant, differences


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


def read_recorded(results: Path) -> list[Recorded]:
    """All that was kept, by recipe, ``main`` first."""
    recorded = []
    # A folder with a dot is what a command that was killed has left.
    folders = {seed.parent for seed in results.glob("*/*/seed-*") if not seed.parent.name.startswith(".")}
    for folder in sorted(folders, key=lambda path: (path.parent.name, path.name != "main", path.name)):
        runs, notes = read_runs([folder])
        if notes:
            fail("results", "intact files", notes[0])
        recipe = folder.parent.name
        overrides = differences(runs[0], find_recipe(recipe).to_dict()) if recipe in recipe_names() else ()
        about = read_object(folder / "run.json")
        recorded.append(Recorded(recipe, overrides, runs, name=folder.name, about=about))
    return recorded
