"""Accuracy side by side: every global part on four recipes with the same epochs, seeds and about as many parameters.

    python -m tools.side_by_side --list                      # the commands
    python -m tools.side_by_side --data-root data            # run them; the same command again goes on
    python -m tools.side_by_side --report --picture side-by-side.svg
    python -m tools.side_by_side --controls --recipes pattern --data-root data

With ``--controls``, on any recipe and all of them where none is named, for a fifth of its epochs: what the global part
is worth, beside none, attention and spectral convolution. ``--epochs`` sets other schedules.

Each line is a ``gssc train`` of its own under OUT/RECIPE/PART. The width is that of the recipe, or, where parameters
would differ by more than 10 % from those with ``glob=gssc``, the one that comes nearest; where a GNN alone is trained,
it too. ``python -m tools.collect OUT/RECIPE/PART --as ablation-glob-PART`` keeps a result for ``docs/ablations.md``.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gssc.config import Recipe
from gssc.datasets.specs import SPECS
from gssc.files import write_atomic
from gssc.model import GLOBALS
from gssc.readers import read_json
from gssc.recipes import find_recipe, recipe_names
from gssc.tasks import spread_text
from gssc.train.build import describe_weights
from tools.equal_width import equal_width

EPOCHS = {"cycles-4": 250, "zinc-12k": 300, "peptides-func": 100, "cluster": 60}
PARTS = tuple(name for name in GLOBALS if name != "gsc")
CONTROLS = ("gssc", "none", "attention", "gsc")
LONG = {"zinc-full": 500}  # epochs of which controls have a fifth, where it is not the recipe's
CLOSE = 0.1  # of parameters


def parameters(recipe: Recipe) -> int:
    """Of its model, running statistics and other buffers apart."""
    spec = SPECS[recipe.data.dataset]
    about = {"task": vars(spec.task), "node_features": spec.node_features, "edge_features": spec.edge_features}
    total = 0
    for name, shape in describe_weights(recipe, about).items():
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked", "omega")):
            size = 1
            for length in shape:
                size *= length
            total += size
    return total


def fifth(name: str) -> int:
    """Epochs of controls."""
    return -(-LONG.get(name, find_recipe(name).train.epochs) // 5)


def overrides(name: str, part: str, epochs: int) -> list[str]:
    """What the run changes in the recipe."""
    recipe = find_recipe(name)
    warm_up = -(-recipe.optim.warmup_epochs * epochs // recipe.train.epochs)
    changes = [f"model.glob={part}", f"train.epochs={epochs}", f"optim.warmup_epochs={warm_up}"]
    if part == "gssc":
        return changes

    def count(width: int) -> int:
        return parameters(recipe.override([*changes, f"model.channels={width}"]))

    wanted, width = parameters(recipe), recipe.model.channels
    if abs(count(width) / wanted - 1) > CLOSE:
        changes.append(f"model.channels={equal_width(count, wanted, width)}")
    return changes


def commands(
    epochs: Mapping[str, int], parts: Sequence[str], seeds: str, out: Path
) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """The command of every recipe, for so many epochs, and part, as words after ``gssc``."""
    for name, number in epochs.items():
        for part in parts:
            place = ["--seeds", seeds, "--out", str(out / name / part), "--resume"]
            yield (name, part), ["train", name, *overrides(name, part, number), *place]


def rows(names: Sequence[str], parts: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """What has finished: ``summary.json`` of every recipe and part, with their names."""
    found = []
    for name in names:
        for part in parts:
            path = out / name / part / "summary.json"
            if path.exists():
                found.append({"recipe": name, "part": part, **read_json(path)})
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of a recipe's rows."""
    lines = ["| recipe | global part | validation | test | seeds | parameters | seconds |", "|" + 7 * "---|"]
    for row in found:
        scores = [spread_text(row[part]) for part in ("validation", "test")]
        cells = [row["recipe"], row["part"], *scores, str(len(row["seeds"])), f"{row['parameters']:,}"]
        lines.append(f"| {' | '.join(cells)} | {row['train_seconds']:.0f} |")
    return "\n".join(lines)


def draw(found: Sequence[dict[str, Any]], picture: Path) -> None:
    """Test score against seconds of training, a panel for each recipe."""
    import io

    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["recipe"] for row in found))
    figure = Figure(figsize=(4.6 * len(names), 3.7), facecolor="white", layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for row in found:
            if row["recipe"] == name:
                axis.errorbar(row["train_seconds"], row["test"]["mean"], row["test"]["std"], fmt="o", markersize=4)
                at = row["train_seconds"], row["test"]["mean"]
                axis.annotate(row["part"], at, (4, 3), textcoords="offset points", fontsize=7)
        task = SPECS[find_recipe(name).data.dataset].task
        better = f"test {task.metric} {'↑' if task.higher_is_better else '↓'}"
        axis.set(xscale="log", xlabel="seconds of training", ylabel=better, title=name)
    content = io.BytesIO()
    figure.savefig(content, format=picture.suffix.removeprefix("."), metadata={"Date": None, "Creator": None})
    write_atomic(picture, content.getvalue())


def main(arguments: list[str] | None = None) -> None:
    """List, run, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controls", action="store_true", help="for a fifth of the schedule: what the part is worth")
    parser.add_argument("--recipes", nargs="+", choices=recipe_names())
    parser.add_argument("--parts", nargs="+", choices=GLOBALS)
    parser.add_argument("--epochs", type=int, help="of every run, in place of those that each recipe has here")
    parser.add_argument("--seeds", default="0-1")
    parser.add_argument("--out", type=Path, help="folder of all runs; runs/side-by-side, or runs/controls")
    parser.add_argument("--list", action="store_true", help="say the commands and run nothing")
    parser.add_argument("--report", action="store_true", help="say what has finished and run nothing")
    parser.add_argument("--picture", type=Path, help="an SVG or PNG file of what has finished")
    options, more = parser.parse_known_args(arguments)  # others are for `gssc train`: --data-root, --device, …
    names = options.recipes or (recipe_names() if options.controls else list(EPOCHS))
    parts = options.parts or (CONTROLS if options.controls else PARTS)
    out = options.out or Path("runs", "controls" if options.controls else "side-by-side")
    epochs = {name: options.epochs or (None if options.controls else EPOCHS.get(name)) or fifth(name) for name in names}
    for (name, part), words in commands({} if options.report else epochs, parts, options.seeds, out):
        print(" ".join(["gssc", *words, *more]), flush=True)
        if not options.list and subprocess.run([sys.executable, "-m", "gssc", *words, *more]).returncode:
            print(f"{name}, {part}: no result, for the reason above", flush=True)
    if not options.list:
        found = rows(names, parts, out)
        print(table(found))
        if options.picture is not None and found:
            draw(found, options.picture)


if __name__ == "__main__":
    main()
