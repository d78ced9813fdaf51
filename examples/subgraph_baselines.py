"""ID-GIN and NGNN count cycles: networks on the subgraph around every node, trained as the recipes of cycles are.

    python examples/subgraph_baselines.py --model ngnn --recipe cycles-4 --data-root data

All subgraphs of a batch are one graph of pairs (root, node), on which a GIN runs. Graphs, split, metric, loss, schedule
and average of weights are the recipe's; width, depth and hops are arguments, and not those of a publication.
`tests/examples/test_subgraph_baselines.py` has the formulas, and what each can count.
"""

import argparse
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gssc.datasets import open_dataset
from gssc.recipes import find_recipe
from gssc.train.build import build_stores
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer, mix


class Subgraphs(NamedTuple):
    """The nodes within so many steps from each node, which is their root: M rows in the order of roots and nodes."""

    roots: Tensor  # [M]
    nodes: Tensor  # [M]
    distance: Tensor  # from the root, [M]
    edge_index: Tensor  # among rows of the same root, [2, F]


def rooted_subgraphs(edge_index: Tensor, num_nodes: int, hops: int) -> Subgraphs:
    """The subgraphs around all nodes of a graph or of a packed batch, breadth first from all roots at once."""
    source, order = edge_index[0].sort(stable=True)
    target = edge_index[1, order]
    first = torch.searchsorted(source, torch.arange(num_nodes + 1, device=source.device))

    def neighbours(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs root · N + node -> which of them leads to which pair."""
        count = first.diff()[rows % num_nodes]
        row = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
        within = torch.arange(len(row), device=rows.device) - (count.cumsum(0) - count)[row]
        return row, rows[row] // num_nodes * num_nodes + target[first[rows[row] % num_nodes] + within]

    found = frontier = torch.arange(num_nodes, device=source.device) * (num_nodes + 1)
    distance = torch.zeros_like(found)
    for hop in range(1, hops + 1):
        reached = neighbours(frontier)[1].unique()
        frontier = reached[~torch.isin(reached, found)]
        found, distance = torch.cat([found, frontier]), torch.cat([distance, torch.full_like(frontier, hop)])
    found, order = found.sort()
    row, pairs = neighbours(found)
    place = torch.searchsorted(found, pairs).clamp(max=len(found) - 1)
    inside = found[place] == pairs
    edges = torch.stack([row[inside], place[inside]])
    return Subgraphs(found // num_nodes, found % num_nodes, distance[order], edges)


def summed(rows: Tensor, index: Tensor, count: int) -> Tensor:
    """Sums of rows with the same number, [count, C]."""
    return rows.new_zeros(count, rows.shape[1]).index_add(0, index, rows)


def make_mlp(*widths: int, norm: bool = False) -> nn.Sequential:
    """Linear, BatchNorm if asked for, and ReLU; without the last two at the end."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers[: -2 if norm else -1])


class IDGINLayer(nn.Module):
    r"""h_u ← MLP((1 + ε) h_u + Σ_s W_{[s is the root]} h_s) over edges from s to u: the root is told apart."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin_root, self.lin_other = (nn.Linear(channels, channels, bias=False) for _ in range(2))
        self.eps, self.mlp = nn.Parameter(torch.zeros(())), make_mlp(channels, channels, channels, norm=True)

    def forward(self, h: Tensor, subgraphs: Subgraphs) -> Tensor:
        (source, target), roots = subgraphs.edge_index, (subgraphs.distance == 0).nonzero().squeeze(1)
        messages = self.lin_other(h).index_copy(0, roots, self.lin_root(h[roots]))
        return self.mlp((1 + self.eps) * h + summed(messages[source], target, len(h)))


class IDGIN(nn.Module):
    """Identity-aware GIN, https://arxiv.org/abs/2101.10320: what the root says of itself in the end, [N, C]."""

    def __init__(self, channels: int, layers: int, hops: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(IDGINLayer(channels) for _ in range(layers))

    def forward(self, x: Tensor, subgraphs: Subgraphs) -> Tensor:
        h = x[subgraphs.nodes]
        for layer in self.layers:
            h = layer(h, subgraphs).relu()
        return h[subgraphs.distance == 0]


class NGNN(nn.Module):
    """Nested GNN, https://arxiv.org/abs/2110.13197: a GIN on labels of distance, summed over each subgraph, [N, C]."""

    def __init__(self, channels: int, layers: int, hops: int) -> None:
        super().__init__()
        self.label = nn.Embedding(hops + 1, channels)
        self.eps = nn.Parameter(torch.zeros(layers))
        self.mlps = nn.ModuleList(make_mlp(channels, channels, channels, norm=True) for _ in range(layers))
        self.pooled = make_mlp(channels, channels, channels)

    def forward(self, x: Tensor, subgraphs: Subgraphs) -> Tensor:
        h, (source, target) = x[subgraphs.nodes] + self.label(subgraphs.distance), subgraphs.edge_index
        for eps, mlp in zip(self.eps, self.mlps, strict=True):
            h = mlp((1 + eps) * h + summed(h[source], target, len(h))).relu()
        return self.pooled(summed(h, subgraphs.roots, len(x)))


class Counter(nn.Module):
    """An embedding for all nodes alike, one of the networks on subgraphs, and a head; called as `gssc.GSSC` is."""

    def __init__(self, make: Callable[..., nn.Module], channels: int, layers: int, hops: int) -> None:
        super().__init__()
        self.hops, self.embedding = hops, nn.Parameter(torch.randn(1, channels))
        self.network = make(channels, layers, hops)
        self.head = make_mlp(channels, channels, 1)

    def forward(self, edge_index: Tensor, batch: Tensor, **_) -> Tensor:
        subgraphs = rooted_subgraphs(edge_index, len(batch), self.hops)
        return self.head(self.network(self.embedding.expand(len(batch), -1), subgraphs))


def make_model(name: str, channels: int, layers: int, hops: int) -> nn.Module:
    """By name."""
    return Counter({"id-gin": IDGIN, "ngnn": NGNN}[name], channels, layers, hops)


def main(
    arguments: list[str] | None = None,
    make: Callable[..., nn.Module] = make_model,
    names=("ngnn", "id-gin"),
    text=__doc__,
) -> float:
    """Train, select by validation, score the test graphs once; the test error over the deviation of the target."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=names, default=names[0])
    parser.add_argument("--recipe", choices=[f"cycles-{length}" for length in (3, 4, 5, 6)], default="cycles-4")
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="graphs are generated where none are")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--hops", type=int, help="default: as many as a cycle needs")
    parser.add_argument("--epochs", type=int, help="default: the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    recipe, hops = find_recipe(options.recipe), options.hops or int(options.recipe[-1]) // 2
    if options.epochs:
        warm_up = -(-recipe.optim.warmup_epochs * options.epochs // recipe.train.epochs)
        recipe = recipe.override([f"train.epochs={options.epochs}", f"optim.warmup_epochs={warm_up}"])
    dataset = open_dataset(options.recipe, options.data_root)
    stores = build_stores(dataset, recipe, options.device, None)
    torch.manual_seed(mix(options.seed))
    model = make(options.model, options.channels, options.layers, hops).to(options.device)
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters, {hops} hops", flush=True)
    trainer, best = Trainer(model, stores["train"], dataset.task, recipe, options.seed, Processes()), math.inf
    weights = trainer.weights()
    for epoch in range(1, recipe.train.epochs + 1):
        trainer.run_epoch(Position(epoch, 0, []), lambda: False)
        if epoch % recipe.train.eval_every == 0 or epoch == recipe.train.epochs:
            score = trainer.evaluate(stores["val"])[1]
            if score < best:
                best, weights = score, trainer.weights()
            print(f"epoch {epoch:4}  validation {score:.5f}  best {best:.5f}", flush=True)
    trainer.evaluated.load_state_dict(weights)
    test = trainer.score(stores["test"])[1]
    print(f"{options.model} on {options.recipe}, seed {options.seed}: test {test:.5f}")
    return test


if __name__ == "__main__":
    main()
