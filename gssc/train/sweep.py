"""Many variants of one recipe: a grid, or a study by Optuna. Finished trials are kept, so that a sweep can go on."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gssc.checks import check_installed, fail
from gssc.config import RETIRED, Recipe
from gssc.files import write_json
from gssc.readers import TRIALS, conform, parse_yaml, read_json

Result = dict[str, Any]  # a variant and the summary of its training
Trial = Callable[[list[str], Path], Result | None]
Say = Callable[[str], None]
# Keys that decide what is scored, and so whether scores can be compared.
TASK_KEYS = tuple(f"data.{name}" for name in ("dataset", "file", "target_columns", "task", "metric"))


@dataclass(frozen=True)
class Axis:
    """One key that varies: over a list of values, or (for a study) between two, of integers where the key is one."""

    key: str
    values: tuple[Any, ...]
    kind: Literal["list", "range", "log"] = "list"  # a range on a linear scale, or on that of logarithms

    def holds(self, value: Any) -> bool:
        """Whether the axis can take this value."""
        if self.kind == "list":
            return value in self.values
        return isinstance(value, int | float) and self.values[0] <= value <= self.values[1]


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
        return Axis(key, tuple(parse_yaml(value, f"axis {key}", "a value in YAML") for value in rest.split(",")))
    low, high = (_read(recipe, key, end) for end in pieces)
    # The recipe has made them what its field is: not a number for a choice, a truth value or text.
    if any(type(end) not in (int, float) or not math.isfinite(end) for end in (low, high)):
        fail(f"axis {key}", "two numbers low..high", repr(rest))
    if low > high:
        fail(f"axis {key}", "low..high with low <= high", repr(rest))
    kind: Literal["log", "range"] = "log" if rest.startswith("log:") else "range"
    if kind == "log" and low <= 0:
        fail(f"axis {key}", "log:low..high with low > 0", repr(rest))
    return Axis(key, (low, high), kind)


def _read(recipe: Recipe, key: str, text: str) -> Any:
    """A value as the recipe reads it, of the type of its field."""
    if key in RETIRED:
        fail(f"axis {key}", "a key that is in use", "one that is retired")
    section, _, name = key.partition(".")
    return getattr(getattr(recipe.override([f"{key}={text}"]), section), name)


def run_sweep(axes: list[Axis], trials: int | None, seed: int, out: Path, trial: Trial, say: Say) -> list[Result]:
    """Train every combination of the axes, or as many variants as ``trials`` says, which Optuna chooses by score.

    Each goes through ``trial``, which fails where the folder has a run of another recipe; None of it means that time
    ran out. Finished runs are read, not trained again; a seed that was not asked for before is trained now.
    """
    stored = _stored(out, axes, study=trials is not None)
    results: list[Result] = []
    if trials is None:
        variants, total = _grid(axes), math.prod(len(axis.values) for axis in axes)
    else:
        variants, total = _study(axes, trials, seed, stored, results), trials
    for line, variant in variants:
        if line:
            say(line)
        summary = trial(variant["overrides"], out / str(variant["folder"]))
        if summary is None:
            say(f"stopped: {len(results)} of {total} variants are done; the same command goes on from there")
            break
        results.append(variant | summary)
        write_json(out / "sweep.json", results + stored[len(results) :])
    return results


def _grid(axes: list[Axis]) -> Iterator[tuple[str, Result]]:
    """All combinations, each with a line that announces it."""
    for axis in axes:
        if axis.kind != "list":
            fail("axis", "a list of values (a range needs --trials)", axis.key)
    for choice in itertools.product(*(axis.values for axis in axes)):
        overrides = [_override(axis.key, value) for axis, value in zip(axes, choice, strict=True)]
        folder = "+".join(text.partition(".")[2].replace("/", "_") for text in overrides)
        yield " ".join(overrides), {"overrides": overrides, "folder": folder}


def _study(
    axes: list[Axis], trials: int, seed: int, stored: list[Result], results: list[Result]
) -> Iterator[tuple[str, Result]]:
    """What was stored, then what Optuna proposes in the light of the ``results`` so far, with a line on each of those.

    They are told to a new sampler each time. Its random numbers are seeded by the number of the trial, so that a study
    that was interrupted proposes what it would have proposed.
    """
    check_installed("--trials", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spaces = {axis.key: _distribution(axis, optuna.distributions) for axis in axes}
    for entry in stored:
        yield "", {key: entry[key] for key in ("overrides", "parameters_tried", "folder")}
    for number in range(len(stored), trials):
        sampler = optuna.samplers.TPESampler(seed=seed * 100_003 + number, n_startup_trials=min(10, trials))
        scored = [result for result in results if result["validation"]["mean"] is not None]
        maximize = bool(scored) and scored[0]["higher_is_better"]
        study = optuna.create_study(direction="maximize" if maximize else "minimize", sampler=sampler)
        for result in scored:
            tried, score = result["parameters_tried"], result["validation"]["mean"]
            study.add_trial(optuna.trial.create_trial(params=tried, distributions=spaces, value=score))
        chosen = study.ask(spaces).params
        overrides = [_override(key, value) for key, value in chosen.items()]
        line = f"trial {number + 1} of {trials}: {' '.join(overrides)}"
        yield line, {"overrides": overrides, "parameters_tried": chosen, "folder": f"trial-{number:03d}"}


def _stored(out: Path, axes: list[Axis], study: bool) -> list[Any]:
    """The trials that an earlier call has written down; fail where they are none of such a sweep.

    A grid knows its variants, and goes through all of them again.
    """
    entries: list[Any] = read_json(out / "sweep.json") if (out / "sweep.json").exists() else []
    entries = entries if isinstance(entries, list) else [entries]
    if not study:
        if any(isinstance(entry, dict) and "parameters_tried" in entry for entry in entries):
            fail("--out", "a new folder, or that of a grid", f"{out} with a study (--trials)")
        return []
    by_key = {axis.key: axis for axis in axes}
    expected = f"a new folder, or that of a study over {', '.join(by_key)}"
    for entry in entries:
        tried = entry.get("parameters_tried") if isinstance(entry, dict) else None
        if not isinstance(tried, dict) or set(tried) != set(by_key):
            other = f"a study over {', '.join(tried)}" if isinstance(tried, dict) else "something else"
            fail("--out", expected, f"{out} with {other}")
        for key, value in tried.items():
            if not by_key[key].holds(value):
                fail("--out", f"{expected} in these values", f"{out} with {key}={value}")
    conform(entries, TRIALS, out / "sweep.json")
    return entries


def _distribution(axis: Axis, kinds: Any) -> Any:
    if axis.kind == "list":
        return kinds.CategoricalDistribution(axis.values)
    of_numbers = kinds.IntDistribution if isinstance(axis.values[0], int) else kinds.FloatDistribution
    return of_numbers(*axis.values, log=axis.kind == "log")


def _override(key: str, value: Any) -> str:
    return f"{key}={json.dumps(value) if not isinstance(value, str) else value}"
