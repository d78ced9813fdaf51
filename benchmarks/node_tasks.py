"""Node tasks on one graph: ``gssc.fit`` without a setting against GCN and GraphSAGE in plain PyG, tuned on validation.

    python -m benchmarks.node_tasks citeseer.pt tolokers.pt --out rows.json

All are scored alike: same nodes, same metric, the test set once, at the epoch that validation chose. The rivals have
two layers and get what one would try first (`GRID`), each setting with the first seed; the best on validation is then
trained with all seeds. Their features are as they come, row-normalised or standardised (unless they are mostly zeros),
whichever validation prefers, and their graphs have both directions of every edge. Full batches, Adam, early stopping.
Their seconds are those of one training with the chosen setting, without the search that found it.
"""

import copy
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import add_remaining_self_loops, coalesce, degree, to_torch_csr_tensor, to_undirected

import gssc
from gssc.datasets import open_own
from gssc.environment import commit
from gssc.tasks import Task

GRID = {"width": (64, 256), "lr": (0.01, 0.001), "dropout": (0.0, 0.5), "weight_decay": (5e-4, 0.0)}
SCALES = ("none", "row", "standard")
FIRST = {"width": 64, "lr": 0.01, "dropout": 0.5, "weight_decay": 5e-4}  # with which the scale is chosen
EPOCHS, PATIENCE = 1000, 100
SPARSE = 0.1  # share of features that are not zero


class Trained(NamedTuple):
    """Scores of one training at its best validation epoch, and how long it took."""

    validation: float
    test: float
    seconds: float


class Plain(nn.Module):
    """Two layers of one convolution of PyG's, as in its examples."""

    def __init__(self, conv: Callable[..., nn.Module], inputs: int, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second, self.dropout = conv(inputs, width), conv(width, outputs), dropout

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        if x.layout == torch.sparse_csr:  # zeros stay zeros
            kept = F.dropout(x.values(), self.dropout, self.training)
            h = torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), kept, x.shape)
        else:
            h = F.dropout(x, self.dropout, self.training)
        h = self.first(h, adjacency).relu()
        h = F.dropout(h, self.dropout, self.training)
        return self.second(h, adjacency)


class Sage(SAGEConv):
    """PyG's ``SAGEConv``, in the order that is cheaper for many features: a mean of what the Linear made of them."""

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        told = F.linear(x, self.lin_l.weight)
        return self.propagate(adjacency, x=(told, told), size=None) + F.linear(x, self.lin_r.weight, self.lin_l.bias)


def adjacency_of(data: Data, normalised: bool) -> Tensor:
    """Neighbours as PyG's convolutions take them fastest on a CPU: a CSR tensor, with the weights of GCN or of a mean.

    That spares the convolutions nothing but doing it again in every step.
    """
    nodes = int(data.num_nodes or 0)
    edges = to_undirected(coalesce(data.edge_index, num_nodes=nodes), num_nodes=nodes)
    if not normalised:
        return to_torch_csr_tensor(edges, size=(nodes, nodes))
    loops, _ = add_remaining_self_loops(edges, num_nodes=nodes)
    scale = degree(loops[1], nodes).rsqrt()
    return to_torch_csr_tensor(loops, scale[loops[0]] * scale[loops[1]], size=(nodes, nodes))


RIVALS: dict[str, tuple[Callable[..., nn.Module], bool]] = {
    "GCN": (partial(GCNConv, normalize=False), True),
    "GraphSAGE": (Sage, False),
}


def scaled(x: Tensor, how: str, train: Tensor) -> Tensor:
    """Features as they come, divided by the sum of their row, or standardised by the training nodes."""
    if how == "row":
        return x / x.sum(1, keepdim=True).clamp(min=1.0)
    if how == "standard":
        std = x[train].std(0)
        return (x - x[train].mean(0)) / torch.where(std > 1e-6, std, torch.ones_like(std))
    return x


def stored(x: Tensor) -> Tensor:
    """Mostly zeros are multiplied faster as a CSR tensor: the same function."""
    return x.to_sparse_csr() if float((x != 0).float().mean()) < SPARSE else x


def train_plain(name: str, data: Data, adjacency: Tensor, task: Task, x: Tensor, setting: dict, seed: int) -> Trained:
    """One training of a rival."""
    torch.manual_seed(seed)
    start = time.perf_counter()
    model = Plain(RIVALS[name][0], x.shape[1], setting["width"], task.outputs, setting["dropout"]).to(x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=setting["lr"], weight_decay=setting["weight_decay"])
    y, best, since, weights = task.targets(data.y, x.shape[0]), None, 0, model.state_dict()
    for _ in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        task.loss(model(x, adjacency), y, data.train_mask).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found = task.score(model(x, adjacency), y, data.val_mask)
        since += 1
        if task.better(found, best):
            best, since, weights = found, 0, copy.deepcopy(model.state_dict())
        if since >= PATIENCE:
            break
    model.load_state_dict(weights)
    model.eval()
    with torch.no_grad():
        test = task.score(model(x, adjacency), y, data.test_mask)
    return Trained(best if best is not None else float("nan"), test, time.perf_counter() - start)


def tuned(name: str, data: Data, task: Task, seeds: list[int]) -> tuple[list[Trained], dict[str, Any]]:
    """A rival with the setting that validation chose, once per seed."""
    adjacency = adjacency_of(data, RIVALS[name][1])
    features = {how: stored(scaled(data.x.float(), how, data.train_mask)) for how in SCALES}
    if features["none"].layout == torch.sparse_csr:
        del features["standard"]  # of mostly zeros: dense, slow, and far below the others

    def validation(how: str, setting: dict) -> float:
        found = train_plain(name, data, adjacency, task, features[how], setting, seeds[0]).validation
        return found if task.higher_is_better else -found

    scale = max(features, key=lambda how: validation(how, FIRST))
    settings = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    chosen = max(settings, key=lambda setting: validation(scale, setting))
    runs = [train_plain(name, data, adjacency, task, features[scale], chosen, seed) for seed in seeds]
    return runs, {"scale": scale, **chosen}


def ours(data: Data, seeds: list[int], settings: dict[str, Any] | None = None) -> tuple[list[Trained], dict[str, Any]]:
    """`gssc.fit` as it comes, once per seed; its seconds include spectra."""
    runs = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run = gssc.fit(data, seed=seed, settings=settings, out=Path(folder) / "run", quiet=seed != seeds[0])
            seconds = time.perf_counter() - start
            summary = run.summary or {}
            runs.append(Trained(summary["validation"], summary["test"], seconds))
    return runs, {"epochs": summary["epochs_run"], "parameters": summary["parameters"], **(settings or {})}


def opened(path: Path) -> Data:
    """One graph with masks; of several splits the first. Raw files of PyG's ``HeterophilousGraphDataset`` as well."""
    if path.suffix == ".npz":
        raw = {name: torch.from_numpy(values) for name, values in np.load(path).items()}
        masks = {f"{part}_mask": raw[f"{part}_masks"][0].bool() for part in ("train", "val", "test")}
        edges = to_undirected(raw["edges"].long().T, num_nodes=len(raw["node_features"]))
        return Data(x=raw["node_features"].float(), edge_index=edges, y=raw["node_labels"].long(), **masks)
    data = torch.load(path, weights_only=False)
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = data[name][:, 0] if data[name].dim() == 2 else data[name]
    return data


def keep(
    results: dict[str, dict[str, Any]],
    name: str,
    metric: str,
    setting: dict[str, Any],
    runs: Sequence[Trained],
    out: Path | None,
) -> None:
    """Add the scores of a model on a graph, GRAPH/MODEL, to the results, print them, and write all to ``out``."""
    columns = dict(zip(Trained._fields, map(list, zip(*runs, strict=True)), strict=True))
    results[name] = {"metric": metric, "setting": setting, **columns}
    print(f"{name}: validation {columns['validation']}, test {columns['test']}, {setting}", flush=True)
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def conclude(results: dict[str, dict[str, Any]]) -> None:
    """Print where the results were made, and the table."""
    print(f"\n{torch.get_num_threads()} threads, torch {torch.__version__}, commit {commit()}, {date.today()}")
    print("\n".join(table(results)))


def table(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The results as Markdown."""
    yield "| graph | metric | model | validation | test | seconds | setting |"
    yield "|---|---|---|---|---|---|---|"
    for (graph, model), found in ((key.split("/"), found) for key, found in results.items()):
        scores = [spread([100 * number for number in found[part]]) for part in ("validation", "test")]
        setting = ", ".join(f"{key} {value}" for key, value in found["setting"].items())
        seconds = statistics.fmean(found["seconds"])
        yield f"| {graph} | {found['metric']}, % | {model} | {' | '.join(scores)} | {seconds:.0f} | {setting} |"


def spread(numbers: list[float]) -> str:
    """Mean and deviation, in words."""
    return f"{statistics.fmean(numbers):.2f} ± {statistics.stdev(numbers) if len(numbers) > 1 else 0.0:.2f}"


def main(
    files: Annotated[
        list[Path], typer.Argument(help="Graphs with masks: .pt, or the .npz of HeterophilousGraphDataset.")
    ],
    models: Annotated[str, typer.Option(help="Which to train, separated by commas.")] = "GCN,GraphSAGE,gssc",
    device: Annotated[str, typer.Option(help="Of the rivals; ours takes a GPU where there is one.")] = "cpu",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write scores to this JSON file as well.")] = None,
) -> None:
    """Train two plain models, tuned on validation, and `gssc.fit` without a setting; print their test scores."""
    results: dict[str, dict[str, Any]] = {}
    for path in files:
        data, numbers = opened(path), list(range(seeds))
        with tempfile.TemporaryDirectory() as folder:
            torch.save(data, saved := Path(folder) / path.name)
            task = open_own(saved).task
        for model in models.split(","):
            if model == "gssc":
                runs, setting = ours(data, numbers)
            else:
                runs, setting = tuned(model, data.clone().to(device), task, numbers)
            keep(results, f"{path.stem}/{model}", task.metric, setting, runs, out)
    conclude(results)


if __name__ == "__main__":
    typer.run(main)
