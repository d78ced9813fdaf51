"""Link prediction on one graph: ``gssc.fit`` without a setting against a two-layer GCN autoencoder in plain PyG.

    python -m benchmarks.links citeseer.pt --seeds 0-2 --out rows.json

Both get the same split of each seed: 5 % of the edges for validation, 10 % for the test, as many negatives, features
divided by the sums of their rows. The rival is Kipf and Welling's autoencoder, two layers of ``GCNConv`` and the dot
product of both ends, 200 epochs of Adam with other negatives in each; of the settings in `GRID`, the one that is best
on validation with the first seed. Both select their epoch by the AUROC of validation; the test part does not choose.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import NormalizeFeatures, RandomLinkSplit
from torch_geometric.utils import negative_sampling
from torchmetrics.functional.classification import binary_auroc

import gssc
from gssc.train.seeds import parse_seeds

EPOCHS, WIDTH = 200, 128
GRID = [{"lr": lr, "dropout": dropout} for lr in (0.01, 0.001) for dropout in (0.0, 0.5)]


class Autoencoder(nn.Module):
    """Two layers of GCN, and the dot product of the states of both ends."""

    def __init__(self, inputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.first, self.second = GCNConv(inputs, WIDTH), GCNConv(WIDTH, WIDTH // 2)

    def forward(self, part: Data, pairs: Tensor) -> Tensor:
        h = self.first(self.dropout(part.x), part.edge_index).relu()
        h = self.second(self.dropout(h), part.edge_index)
        return (h[pairs[0]] * h[pairs[1]]).sum(1)


def auroc(model: Autoencoder, part: Data) -> float:
    """The score of a part, without gradients."""
    model.eval()
    with torch.no_grad():
        return float(binary_auroc(model(part, part.edge_label_index).sigmoid().double(), part.edge_label.long()))


def autoencoder(parts: tuple[Data, Data, Data], seed: int, lr: float, dropout: float) -> dict[str, Any]:
    """Scores of the rival at its best epoch on validation."""
    torch.manual_seed(seed)
    train, val, test = parts
    model = Autoencoder(train.num_features, dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    links = train.edge_label_index
    best = {"validation": 0.0, "test": 0.0}
    for _ in range(EPOCHS):
        negatives = negative_sampling(train.edge_index, train.num_nodes, links.shape[1], method="sparse")
        labels = torch.cat([torch.ones(links.shape[1]), torch.zeros(negatives.shape[1])])
        optimizer.zero_grad()
        model.train()
        F.binary_cross_entropy_with_logits(model(train, torch.cat([links, negatives], dim=1)), labels).backward()
        optimizer.step()
        score = auroc(model, val)
        if score > best["validation"]:
            best = {"validation": score, "test": auroc(model, test)}
    return best


def ours(parts: tuple[Data, Data, Data], seed: int) -> dict[str, Any]:
    """Scores of `gssc.fit` with its defaults."""
    summary = gssc.fit(parts, seed=seed, device="cpu", quiet=True).summary or {}
    return {part: summary[part] for part in ("validation", "test")}


def main(
    file: Annotated[Path, typer.Argument(help="One graph of PyG, undirected.")],
    seeds: Annotated[str, typer.Option(help="Of split and training.")] = "0-2",
    out: Annotated[Path | None, typer.Option(help="A .json file for the rows.")] = None,
    rivals: Annotated[bool, typer.Option("--rivals", help="The rival alone.")] = False,
) -> None:
    """Print a row for each training, then mean and deviation of each model."""
    saved = torch.load(file, weights_only=False)
    graph = saved[0] if isinstance(saved, list | tuple) else saved
    graph = NormalizeFeatures()(Data(x=graph.x, edge_index=graph.edge_index))
    rows: list[dict[str, Any]] = []
    chosen: dict[str, float] = {}
    for seed in parse_seeds(seeds):
        torch.manual_seed(seed)
        parts = RandomLinkSplit(0.05, 0.1, is_undirected=True, add_negative_train_samples=False)(graph)
        tried = []
        for setting in [chosen] if chosen else GRID:
            start = time.perf_counter()
            row = {"model": "GCN autoencoder", "seed": seed, **setting, **autoencoder(parts, seed, **setting)}
            tried.append(row | {"seconds": round(time.perf_counter() - start, 1)})
            print(json.dumps(tried[-1]), flush=True)
        rows.append(max(tried, key=lambda row: row["validation"]))
        chosen = chosen or {name: rows[-1][name] for name in GRID[0]}
        if not rivals:
            start = time.perf_counter()
            rows.append({"model": "gssc", "seed": seed, **ours(parts, seed)})
            rows[-1]["seconds"] = round(time.perf_counter() - start, 1)
            print(json.dumps(rows[-1]), flush=True)
    for name in dict.fromkeys(row["model"] for row in rows):
        scores = [row["test"] for row in rows if row["model"] == name]
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        print(f"{name}: test AUROC {statistics.mean(scores):.4f} ± {deviation:.4f} ({len(scores)} seeds)")
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
