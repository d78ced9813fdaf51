"""Many variants of one recipe: a grid, or a study by Optuna. Finished trials are kept, so that a sweep can go on."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gssc.checks import check_installed, fail
from gssc.config import RETIRED, Recipe
from gssc.files import read_json, write_json

Trial = Callable[[list[str], Path], dict[str, Any] | None]
# Keys that decide what is scored, and so whether scores can be compared.
TASK_KEYS = tuple(f"data.{name}" for name in ("dataset", "file", "target_columns", "task", "metric"))


@dataclass(frozen=True)
class Axis:
    """One key that varies: a list of values, or (for a study) a range, of integers where the key is one."""

    key: str
    values: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False

    def holds(self, value: Any) -> bool:
        """Whether the axis can take this value."""
        if self.low is None or self.high is None:
            return value in self.values
        return isinstance(value, int | float) and self.low <= value <= self.high


def parse_axis(text: str, recipe: Recipe) -> Axis:
    """``section.key=a,b,c`` for values; ``section.key=low..high`` for a range, ``log:low..high`` on a log scale.

    All values, and both ends of a range, must be ones that the recipe takes.
    """
    key, separator, rest = text.partition("=")
    if not separator or "." not in key or not rest:
        fail("axis", "section.key=a,b,c or section.key=low..high", repr(text))
    if key in TASK_KEYS:
        fail(f"axis {key}", "a key that keeps the task (scores of different tasks cannot be compared)", repr(rest))
    pieces = rest.removeprefix("log:").split("..", 1)
    if len(pieces) == 1:
        for value in rest.split(","):
            _read(recipe, key, value)
        return Axis(key, tuple(yaml.safe_load(value) for value in rest.split(",")))
    low, high = (_read(recipe, key, end) for end in pieces)
    # The recipe has made them what its field is: not a number for a choice, a truth value or text.
    if any(type(end) not in (int, float) or not math.isfinite(end) for end in (low, high)):
        fail(f"axis {key}", "two numbers low..high", repr(rest))
    if low > high:
        fail(f"axis {key}", "low..high with low <= high", repr(rest))
    log = rest.startswith("log:")
    if log and low <= 0:
        fail(f"axis {key}", "log:low..high with low > 0", repr(rest))
    return Axis(key, low=low, high=high, log=log)


def _read(recipe: Recipe, key: str, text: str) -> Any:
    """A value as the recipe reads it, of the type of its field."""
    if key in RETIRED:
        fail(f"axis {key}", "a key that is in use", "one that is retired")
    section, _, name = key.partition(".")
    return getattr(getattr(recipe.override([f"{key}={text}"]), section), name)


def first_overrides(axes: list[Axis]) -> list[str]:
    """Those of one variant, before any is chosen."""
    return [_override(axis.key, axis.values[0] if axis.values else axis.low) for axis in axes]


def grid(axes: list[Axis]) -> Iterator[list[str]]:
    """Overrides of every combination."""
    for axis in axes:
        if not axis.values:
            fail("axis", "a list of values (a range needs --trials)", axis.key)
    for choice in itertools.product(*(axis.values for axis in axes)):
        yield [_override(axis.key, value) for axis, value in zip(axes, choice, strict=True)]


def run_grid(axes: list[Axis], out: Path, trial: Trial, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Train every combination that is not finished yet; None of ``trial`` means that time ran out."""
    path = out / "sweep.json"
    if path.exists() and any("parameters_tried" in entry for entry in read_json(path)):
        fail("--out", "a new folder, or that of a grid", f"{out} with a study (--trials)")
    results: list[dict[str, Any]] = []
    for overrides in grid(axes):
        say(" ".join(overrides))
        folder = "+".join(text.partition(".")[2].replace("/", "_") for text in overrides)
        if not _try({"overrides": overrides, "folder": folder}, out, results, trial):
            say(_stopped(len(results), math.prod(len(axis.values) for axis in axes)))
            break
    return results


def _try(variant: dict[str, Any], out: Path, results: list[dict[str, Any]], trial: Trial) -> bool:
    """Train a variant and write it down after the others; False where time ran out."""
    summary = trial(variant["overrides"], out / variant["folder"])
    if summary is not None:
        results.append(variant | summary)
        write_json(out / "sweep.json", results)
    return summary is not None


def run_study(
    axes: list[Axis], trials: int, seed: int, out: Path, maximize: bool, trial: Trial, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Let Optuna choose ``trials`` variants by validation score.

    What is finished is read from ``sweep.json`` and told to a new sampler. Its random numbers are seeded by the number
    of the trial, so that a study that was interrupted proposes what it would have proposed.
    """
    check_installed("--trials", "optuna", "sweep")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spaces = {axis.key: _distribution(axis, optuna.distributions) for axis in axes}
    results, in_time = _finished(out, {axis.key: axis for axis in axes}, trial)
    for number in range(len(results), trials) if in_time else ():
        sampler = optuna.samplers.TPESampler(seed=seed * 100_003 + number, n_startup_trials=min(10, trials))
        study = optuna.create_study(direction="maximize" if maximize else "minimize", sampler=sampler)
        for result in results:
            score = result["validation"]["mean"]
            if score is not None:
                study.add_trial(
                    optuna.trial.create_trial(params=result["parameters_tried"], distributions=spaces, value=score)
                )
        chosen = study.ask(spaces).params
        overrides = [_override(key, value) for key, value in chosen.items()]
        say(f"trial {number + 1} of {trials}: {' '.join(overrides)}")
        variant = {"overrides": overrides, "parameters_tried": chosen, "folder": f"trial-{number:03d}"}
        in_time = _try(variant, out, results, trial)
        if not in_time:
            break
    if not in_time:
        say(_stopped(len(results), trials))
    return results


def _finished(out: Path, axes: dict[str, Axis], trial: Trial) -> tuple[list[dict[str, Any]], bool]:
    """The trials of an earlier call, and whether those are all, as far as there was time to look at them.

    Each goes through ``trial``, which fails where the folder has a run of another recipe.
    """
    path = out / "sweep.json"
    entries = read_json(path) if path.exists() else []
    expected = f"a new folder, or that of a study over {', '.join(axes)}"
    for entry in entries if isinstance(entries, list) else [entries]:
        tried = entry.get("parameters_tried") if isinstance(entry, dict) else None
        if not isinstance(tried, dict) or set(tried) != set(axes):
            other = f"a study over {', '.join(tried)}" if isinstance(tried, dict) else "something else"
            fail("--out", expected, f"{out} with {other}")
        for key, value in tried.items():
            if not axes[key].holds(value):
                fail("--out", f"{expected} in these values", f"{out} with {key}={value}")
    results: list[dict[str, Any]] = []
    for entry in entries:
        # Finished runs are read, not trained again; a seed that was not asked for before is trained now.
        summary = trial(entry["overrides"], out / str(entry["folder"]))
        if summary is None:
            return results, False
        results.append({key: entry[key] for key in ("overrides", "parameters_tried", "folder")} | summary)
    if results != entries:
        write_json(path, results)
    return results, True


def diverged(error: Exception) -> dict[str, Any]:
    """What stands for a variant that has no score, with the reason."""
    nothing = {"mean": None, "std": 0.0, "values": [None]}
    return {"validation": nothing, "test": nothing, "diverged": str(error)}


def _distribution(axis: Axis, kinds: Any) -> Any:
    if axis.values:
        return kinds.CategoricalDistribution(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    if isinstance(axis.low, int):
        return kinds.IntDistribution(axis.low, axis.high, log=axis.log)
    return kinds.FloatDistribution(axis.low, axis.high, log=axis.log)


def _stopped(done: int, total: int) -> str:
    return f"stopped: {done} of {total} variants are done; the same command goes on from there"


def _override(key: str, value: Any) -> str:
    return f"{key}={json.dumps(value) if not isinstance(value, str) else value}"
