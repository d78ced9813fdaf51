"""Node tasks on one graph: GSSC against GCN, GraphSAGE and SGFormer of equal depth and size, in the same trainer.

    python -m benchmarks.equal_size pasadena.pt --runs runs/pasadena
    python -m benchmarks.equal_size roads-100000 --width 16 --epochs 60 --rates 0.01 --seeds 2 --runs runs/roads

Four layers each, as wide as makes the parameters those of GSSC; the same epochs, schedule and heads. Learning rate and
dropout of every model, GSSC's too, are those of ``--rates`` and ``--dropouts`` with the best validation score of seed
0. Weights are selected on validation, and the test nodes scored once. GCN and GraphSAGE are plain: convolution, norm,
ReLU. SGFormer has its attention in every layer, beside a GCN branch; its authors have one such layer. Two further
models say what does it: GSSC beside GCN, as SGFormer's attention is, and GatedGCN, the local part of GSSC, alone.

Every edge has both directions, and lengths of edges, which half of the models could not read, are left out. What is
finished in the folder of runs is not trained again.
"""

import shutil
from datetime import date
from itertools import product
from math import isqrt
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import gssc
from benchmarks.node_tasks import Trained, opened, spread
from benchmarks.roads import roads
from gssc.checks import check_choice, fail
from gssc.config import Recipe
from gssc.environment import commit
from gssc.readers import FINISHED, read_object
from gssc.recipes import own_recipe
from gssc.train.build import build_model
from gssc.train.seeds import seed_folders
from tools.equal_width import equal_width

MODELS: dict[str, dict[str, Any]] = {
    "GSSC": {},
    "GCN": {"model.local": "gcn", "model.glob": "none", "model.plain": True},
    "GraphSAGE": {"model.local": "sage", "model.glob": "none", "model.plain": True},
    "SGFormer": {"model.local": "gcn", "model.glob": "sgformer"},
    "GSSC beside GCN": {"model.local": "gcn"},
    "GatedGCN": {"model.glob": "none"},
}
DROPOUT = 0.2
EVERY = 3  # epochs between evaluations on validation, of which each costs as much as half a step


def graph_of(name: str) -> Data:
    """One graph with masks: a file, see `benchmarks.node_tasks.opened`, or ``roads-N`` of about N nodes."""
    if name.startswith("roads-"):
        count = name.removeprefix("roads-")
        if not count.isdecimal() or int(count) < 100:
            fail("graph", "a number of nodes from 100 behind roads-", repr(name))
        side = isqrt(int(count)) + 1  # some nodes are no part of the largest component
        data = roads(side, side)
    else:
        data = opened(Path(name))
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    data.edge_attr = None
    return data


def settings_of(model: str, width: int, epochs: int, rate: float, dropout: float = DROPOUT) -> dict[str, Any]:
    """The keys of the recipe that differ from those of `gssc train --data`."""
    budget = {"train.epochs": epochs, "train.eval_every": EVERY, "train.patience": 0, "optim.lr": rate}
    dropouts = {f"model.dropout_{part}": dropout for part in ("local", "global", "ffn")}
    return {"model.channels": width, "spectrum.rwse": 0, **budget, **dropouts, **MODELS[model]}


def recipe_of(settings: dict[str, Any]) -> Recipe:
    """The recipe of `gssc.fit` with these settings."""
    return own_recipe(Path("graphs.pt")).override([f"{key}={str(value).lower()}" for key, value in settings.items()])


def width_of(model: str, width: int, columns: int, outputs: int) -> int:
    """The width of a model with as many parameters as GSSC of this ``width``."""
    about = {"task": {"outputs": outputs, "level": "node"}, "node_features": columns, "edge_features": None}

    def count(name: str, channels: int) -> int:
        with torch.device("meta"):
            built = build_model(recipe_of(settings_of(name, channels, 1, 0.01)), about)
        return sum(parameter.numel() for parameter in built.parameters())

    if model == "GSSC":
        return width
    return equal_width(lambda channels: count(model, channels), count("GSSC", width), width)


def folder_name(model: str, rate: object, seed: int, dropout: float = DROPOUT) -> str:
    """Of a run inside the folder of runs."""
    other = "" if dropout == DROPOUT else f"-dropout-{dropout}"
    return f"{model.replace(' ', '-').lower()}-lr-{rate}{other}-seed-{seed}"


def trained(data: Data, settings: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """The summary of one training, which is done unless it lies in the folder finished."""
    summary = seed_folders(folder, [seed])[seed] / "summary.json"
    if not summary.exists():
        shutil.rmtree(folder, ignore_errors=True)
        gssc.fit(data, seed=seed, settings=settings, out=folder, quiet=True)
    return dict(read_object(summary, FINISHED))


def compared(
    model: str, data: Data, width: int, epochs: int, rates: list[float], dropouts: list[float], seeds: int, runs: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The summaries of a model, one for each seed, and its learning rate, dropout and width."""
    outputs = int(data.y.max()) + 1
    wide = width_of(model, width, data.num_features, outputs)

    def run(rate: float, dropout: float, seed: int) -> dict[str, Any]:
        settings = settings_of(model, wide, epochs, rate, dropout)
        return trained(data, settings, seed, runs / folder_name(model, rate, seed, dropout))

    first = {pair: run(*pair, 0) for pair in product(rates, dropouts)}
    better = max if next(iter(first.values()))["higher_is_better"] else min
    pair = better(first, key=lambda one: first[one]["validation"])
    done = [first[pair], *(run(*pair, seed) for seed in range(1, seeds))]
    return done, {"width": wide, "lr": pair[0], "dropout": pair[1]}


def main(
    graph: Annotated[str, typer.Argument(help="A graph with masks, .pt or .npz, or roads-N of about N nodes.")],
    models: Annotated[str, typer.Option(help="Which to train, separated by commas.")] = ",".join(MODELS),
    width: Annotated[int, typer.Option(min=4, help="Of GSSC; the others are as wide as equal size makes them.")] = 32,
    epochs: Annotated[int, typer.Option(min=1, help="Steps, each of the whole graph.")] = 150,
    rates: Annotated[str, typer.Option(help="Learning rates to choose from, separated by commas.")] = "0.003,0.01",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    dropouts: Annotated[str, typer.Option(help="Dropouts to choose from, separated by commas.")] = str(DROPOUT),
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/equal-size"),
) -> None:
    """Train models of equal size and print their scores as Markdown, a row as soon as a model is done."""
    for model in models.split(","):
        check_choice("--models", model, MODELS)
    data = graph_of(graph)
    print(f"{graph}: {data.num_nodes:,} nodes, {data.num_edges:,} directed edges, {epochs} epochs, {seeds} seeds")
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, commit {commit()}, {date.today()}\n")
    print("| model | parameters | width | learning rate | dropout | validation | test | of each seed |")
    print("|---|---|---|---|---|---|---|---|")
    for model in models.split(","):
        some_rates, some_dropouts = ([*map(float, values.split(","))] for values in (rates, dropouts))
        done, chosen = compared(model, data, width, epochs, some_rates, some_dropouts, seeds, runs)
        scores = [Trained(one["validation"], one["test"], one["train_seconds"]) for one in done]
        shown = [spread([100 * score for score in column]) for column in list(zip(*scores, strict=True))[:2]]
        each = ", ".join(f"{100 * score.test:.2f}" for score in scores)
        size = f"{done[0]['parameters']:,}"
        picked = " | ".join(str(chosen[key]) for key in ("width", "lr", "dropout"))
        print(f"| {model} | {size} | {picked} | {' | '.join(shown)} | {each} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
