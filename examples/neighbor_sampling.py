"""Sampled neighbourhoods with a global state of the whole graph, which is one epoch old, against the whole graph.

    python examples/neighbor_sampling.py pasadena.pt --seeds 3 --epochs 60

A step sees some training nodes and neighbours sampled around them. Of all other nodes the global part needs only its
state U = PᵀX, K × C numbers per layer. These are computed for the whole graph once per epoch, without gradient, with
the weights that the epoch begins with: they are **stale** in all steps but the first. Where the sample itself makes U,
its value is replaced by the stale one; its derivative, times N / n, stays (``--ways none``: nothing stays).

The modules do not change: what a shard knows of its neighbours, `gssc.ops.halo.Halo`, here knows the state.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from gssc import GSSC, LaplacianSpectrum, model_inputs
from gssc.ops.halo import Halo


@dataclass(frozen=True, eq=False)
class Recording(Halo):
    """The whole graph, whose sums over nodes are kept in the order in which layers ask for them."""

    states: list[Tensor] = field(default_factory=list)

    def begin_sum(self, statistic: Tensor) -> Callable[[], Tensor]:
        self.states.append(statistic)
        return lambda: statistic


@dataclass(frozen=True, eq=False)
class Stale(Recording):
    """A sample of n nodes, for which every sum over nodes is the next of the recorded ``states``."""

    scale: float = 0.0  # of the sample's own derivative: N / n, or 0

    def begin_sum(self, statistic: Tensor) -> Callable[[], Tensor]:
        state = self.states.pop(0) + self.scale * (statistic - statistic.detach())
        return lambda: state


def entering(edge_index: Tensor, nodes: int) -> Tensor:
    """Edges that enter each node from another one, [N]."""
    source, target = edge_index
    return torch.bincount(target[source != target], minlength=nodes)


def states_of(model: GSSC, data: Data) -> list[Tensor]:
    """The state of every layer, of the whole graph, as the model evaluates it."""
    nodes = data.num_nodes
    whole = Recording(nodes, torch.zeros(0, dtype=torch.long), [0], [0], entering(data.edge_index, nodes))
    model.eval()
    with torch.no_grad():
        model(**model_inputs(data), halo=whole)
    return whole.states


def sample(seeds: Tensor, edge_index: Tensor, nodes: int, fanout: int, hops: int) -> tuple[Tensor, Tensor]:
    """Nodes, the seeds first, and edges [2, e] among them: up to ``fanout`` that enter a node, and so on outwards."""
    reached, chosen = torch.zeros(nodes, dtype=torch.bool), []
    front = seeds
    for _ in range(hops):
        reached[front] = True
        new = torch.zeros_like(reached)
        new[front] = True
        edges = new[edge_index[1]].nonzero().squeeze(1)
        edges = edges[torch.randperm(len(edges))]
        target, order = edge_index[1, edges].sort(stable=True)
        rank = torch.arange(len(target)) - torch.searchsorted(target, target)
        chosen.append(edges[order[rank < fanout]])
        source = edge_index[0, chosen[-1]].unique()
        front = source[~reached[source]]
    reached[front] = True
    reached[seeds] = False
    kept = torch.cat([seeds, reached.nonzero().squeeze(1)])
    number = torch.full((nodes,), -1)
    number[kept] = torch.arange(len(kept))
    return kept, number[edge_index[:, torch.cat(chosen)]]


def on_sample(model: GSSC, data: Data, nodes: Tensor, edges: Tensor, states: list[Tensor], scale: float) -> Tensor:
    """What the model says of some nodes and edges among them, given the states."""
    nothing, degree = torch.zeros(0, dtype=torch.long), entering(edges, len(nodes))
    stale = Stale(data.num_nodes, nothing, [0], [0], degree, states=[*states], scale=scale)
    part = {"x": data.x[nodes], "eigvecs": data.eigvecs[nodes], "eigvals": data.eigvals, "eigmask": data.eigmask}
    return model(edge_index=edges, **part, halo=stale)


def train(data: Data, how: str, seed: int, options: argparse.Namespace) -> tuple[float, int]:
    """Test accuracy at the best epoch on validation, and the number of steps; ``how`` is whole, sample or none."""
    torch.manual_seed(seed)
    model = GSSC(int(data.y.max()) + 1, 32, options.layers, node_features=data.num_features, level="node")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    rows, best, test, steps = data.train_mask.nonzero().squeeze(1), 0.0, 0.0, 0
    for _ in range(options.epochs):
        states = [] if how == "whole" else states_of(model, data)
        for seeds in [rows] if how == "whole" else rows[torch.randperm(len(rows))].split(options.batch):
            model.train()
            optimizer.zero_grad()
            if how == "whole":
                out = model(**model_inputs(data))[seeds]
            else:
                nodes, edges = sample(seeds, data.edge_index, data.num_nodes, options.fanout, options.layers)
                scale = data.num_nodes / len(nodes) if how == "sample" else 0.0
                out = on_sample(model, data, nodes, edges, states, scale)[: len(seeds)]
            cross_entropy(out, data.y[seeds]).backward()
            optimizer.step()
            steps += 1
        model.eval()
        with torch.no_grad():
            right = (model(**model_inputs(data)).argmax(1) == data.y).float()
        if (score := float(right[data.val_mask].mean())) > best:
            best, test = score, float(right[data.test_mask].mean())
    return test, steps


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Test accuracies by way of training, one for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path, help="A file with one Data with masks.")
    parser.add_argument("--ways", nargs="+", choices=("whole", "sample", "none"), default=["whole", "sample", "none"])
    for name, default in (("epochs", 30), ("seeds", 1), ("batch", 256), ("fanout", 10), ("layers", 3), ("k", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    data = torch.load(options.graph, weights_only=False)
    masks = {f"{part}_mask": data[f"{part}_mask"] for part in ("train", "val", "test")}
    x = (data.x - data.x[data.train_mask].mean(0)) / data.x[data.train_mask].std(0).clamp(min=1e-6)
    data = Data(x=x, y=data.y, edge_index=to_undirected(data.edge_index, num_nodes=len(x)), **masks)
    data, found = LaplacianSpectrum(k=options.k)(data), {}
    for how in options.ways:
        runs = [train(data, how, seed, options) for seed in range(options.seeds)]
        found[how] = [test for test, _ in runs]
        words = {"whole": "whole graph", "sample": "sampled, stale state", "none": "sampled, stale state, no gradient"}
        spread = statistics.stdev(found[how]) if len(runs) > 1 else 0.0
        print(f"{words[how]}: test {statistics.fmean(found[how]):.4f} ± {spread:.4f}, {runs[0][1]} steps", flush=True)
    return found


if __name__ == "__main__":
    main()
