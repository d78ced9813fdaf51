"""What preprocessing costs beside training, on the datasets of the paper's Table 4.

    python -m benchmarks.cost zinc-12k --data-root data [--device cuda] [--page docs/cost.md]
    python -m benchmarks.cost voc-sp --generate [--device cuda]

All spectra of the dataset are computed without a cache, then a few epochs of the recipe are trained by the code that
`gssc train` runs, evaluation on validation included; the whole schedule is extrapolated from the median of all epochs
but the first, which compiles and captures. ``--generate`` takes generated graphs of the size of PascalVOC-SP or ZINC.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.graphs import SIZES, voc_like, zinc_like
from benchmarks.harness import append
from gssc.checks import check_choice, fail
from gssc.datasets import GraphDataset, load_pack, open_dataset
from gssc.datasets.open import finish
from gssc.datasets.specs import SPECS
from gssc.environment import commit, hardware
from gssc.files import write_atomic
from gssc.recipes import find_recipe
from gssc.report.provenance import duration
from gssc.report.published import published_costs
from gssc.train import RunSettings, train
from tools.markers import fill

RECIPES = ("zinc-12k", "voc-sp")
GENERATED = 2_000  # molecules of each part
COLUMNS = ("dataset", "graphs", "nodes per graph", "epochs", "training per epoch", "with validation")
TOTALS = ("total training", "total preprocessing", "preprocessing / training")


@dataclass(frozen=True)
class Cost:
    """Seconds, of a dataset and a recipe.

    Args:
        recipe: Its name.
        data: What was measured on, in words.
        graphs: Of all parts.
        nodes: Per graph, on average.
        epochs: Of the recipe's schedule.
        steps: Training steps of an epoch.
        epoch: Training steps and validation of an epoch.
        preprocessing: Spectra and encodings of all graphs, once.
    """

    recipe: str
    data: str
    graphs: int
    nodes: float
    epochs: int
    steps: float
    epoch: float
    preprocessing: float

    @property
    def training(self) -> float:
        """The whole schedule."""
        return self.epochs * self.epoch

    @property
    def ratio(self) -> float:
        return self.preprocessing / self.training

    def cells(self) -> list[str]:
        """A line of the table."""
        sizes = [self.data, f"{self.graphs:,}", f"{self.nodes:.1f}", f"{self.epochs:,}"]
        times = [f"{self.steps:.2f} s", f"{self.epoch:.2f} s", duration(self.training), f"{self.preprocessing:.1f} s"]
        return [*sizes, *times, f"{100 * self.ratio:.2g} %"]


def published_cells(recipe: str) -> list[str]:
    """The line of the paper."""
    costs = {name: f"{cost.value:,g} {cost.unit}".strip() for name, cost in published_costs(recipe).items()}
    names = ("graphs", "nodes per graph", "epochs", "training time per epoch")
    cells = [f"{recipe}, as published (Table 4)", *(costs[name] for name in names), ""]
    last = ("total training time", "total preprocessing time", "preprocessing / training")
    return [*cells, *(costs[name] for name in last)]


def measure(recipe_name: str, dataset: GraphDataset, data: str, device: torch.device, epochs: int) -> Cost:
    """Prepare without a cache, train a few epochs, and take the median."""
    recipe = find_recipe(recipe_name)
    short = recipe.override([f"train.epochs={epochs}", "optim.warmup_epochs=1", "train.tensorboard=false"])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "seed-0"
        summary = train(short, dataset, 0, folder, RunSettings(device, None, quiet=True))
        assert summary is not None  # there is no time limit
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = lines[1:] or lines
    parts = dataset.splits.values()
    graphs, nodes = sum(part.num_graphs for part in parts), sum(part.num_nodes for part in parts)
    steps = dataset.splits["train"].num_graphs / statistics.median(line["graphs_per_second"] for line in kept)
    epoch = statistics.median(line["seconds"] for line in kept)
    return Cost(
        recipe_name, data, graphs, nodes / graphs, recipe.train.epochs, steps, epoch, summary["prepare_seconds"]
    )


def find_data(recipe: str, root: Path | None, pack: Path | None, generate: bool, graphs: int | None) -> GraphDataset:
    """The dataset of a recipe, from its files, from a pack, or generated; at most so many graphs of each part."""
    if sum((root is not None, pack is not None, generate)) != 1:
        fail("data", "one of --data-root, --pack and --generate", "none or several")
    if generate and recipe == "voc-sp":
        return voc_like({split: min(count, graphs or count) for split, count in SIZES.items()})
    if generate:
        flat = zinc_like(min(graphs or GENERATED, GENERATED))
        return finish("zinc-12k", SPECS["zinc-12k"], dict.fromkeys(("train", "val", "test"), flat))
    if pack is not None:
        dataset = load_pack(pack)
        check_choice("dataset of the pack", dataset.name, (recipe,))
    else:
        assert root is not None
        dataset = open_dataset(recipe, root)
    if graphs is not None:
        level = dataset.task.level
        for split, part in dataset.splits.items():
            dataset.splits[split] = part.part(0, min(graphs, part.num_graphs), level)
    return dataset


def rows_of(cost: Cost) -> list[dict[str, object]]:
    """Lines for the results file."""
    workload = f"{cost.recipe}: {cost.data}, {cost.graphs} graphs"
    published = published_costs(cost.recipe)
    said = f"published: {published['training time per epoch'].value} s per epoch, "
    said += f"{published['total preprocessing time'].value} s of preprocessing"
    note = f"{100 * cost.ratio:.2g} % of {cost.epochs} epochs; {said}"
    common: dict[str, object] = {"benchmark": "cost", "workload": workload, "baseline": "epoch"}
    return [
        common | {"variant": "epoch", "p50_ms": f"{1e3 * cost.epoch:.1f}", "ratio": 1.0},
        common
        | {"variant": "training steps of an epoch", "p50_ms": f"{1e3 * cost.steps:.1f}"}
        | {"ratio": round(cost.steps / cost.epoch, 3)},
        common
        | {"variant": "preprocessing", "p50_ms": f"{1e3 * cost.preprocessing:.1f}", "note": note}
        | {"ratio": round(cost.preprocessing / cost.epoch, 3)},
    ]


def page_part(cost: Cost, command: str, device: str) -> str:
    """The table in Markdown, with where it comes from."""
    lines = [[*COLUMNS, *TOTALS], ["---"] * 9, cost.cells(), published_cells(cost.recipe)]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    date = datetime.now(UTC).date().isoformat()
    return f"{table}\n\n{hardware(device)}, `{command}`, commit `{commit()}`, {date}."


def main() -> None:
    """Measure, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--data-root", type=Path, default=None, help="folder of raw data")
    parser.add_argument("--pack", type=Path, default=None, help="a file that `gssc pack` wrote")
    parser.add_argument("--generate", action="store_true", help="generated graphs of the same size")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=4, help="epochs to train")
    parser.add_argument("--graphs", type=int, default=None, help="at most so many graphs of each part")
    parser.add_argument("--page", type=Path, default=None, help="a Markdown page to write the table into")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    options = parser.parse_args()
    device = torch.device(options.device)
    dataset = find_data(options.recipe, options.data_root, options.pack, options.generate, options.graphs)
    data = f"{'generated like ' if options.generate else ''}{options.recipe}"
    cost = measure(options.recipe, dataset, data, device, options.epochs)
    table = Table(title=f"{cost.recipe} on {hardware(device.type)}")
    for heading in ("", "here", "published"):
        table.add_column(heading, justify="right" if heading else "left")
    for heading, ours, theirs in zip((*COLUMNS, *TOTALS), cost.cells(), published_cells(cost.recipe), strict=True):
        table.add_row(heading, ours, theirs)
    Console().print(table)
    append(options.out, rows_of(cost), device.type)
    if options.page is not None:
        words = ["python -m benchmarks.cost", options.recipe, *(["--generate"] if options.generate else [])]
        words += [f"--graphs {options.graphs}"] if options.graphs else []
        command = " ".join([*words, f"--epochs {options.epochs}"])
        text = options.page.read_text(encoding="utf-8") if options.page.exists() else "# Cost\n"
        part = {f"cost-{options.recipe}-{device.type}": page_part(cost, command, device.type)}
        titles = {name: f"{options.recipe} on {hardware(device.type)}" for name in part}
        write_atomic(options.page, fill(text, part, str(options.page), titles))


if __name__ == "__main__":
    main()
