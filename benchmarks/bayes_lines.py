"""What nobody can do better: class-averaged accuracy of the posterior on PATTERN and CLUSTER, by Gibbs sampling.

    python -m benchmarks.bayes_lines pattern cluster --data-root data

The graphs are drawn from stochastic block models whose parameters are published (`gssc.datasets.sbm`): the sampler is
told them, and the sizes that blocks can have, and nothing of the labels but what features say (in CLUSTER the block of
one node each). A node gets the class whose posterior, over the share of the class, is largest, which is best for the
mean of recalls. In PATTERN one of 100 fixed patterns is planted in each graph; here it is a block of which only the
density is known. A model that has learned the patterns themselves from the training graphs can lie above this line.

Blocks are assigned node by node from their conditional distribution, all graphs at once, and where features tell of
blocks, these may exchange their other nodes. The temperature falls to 1 in the first third; then conditional
probabilities are averaged. Two chains from different starts say how far the
result depends on the start.
"""

import argparse
import time
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gssc.datasets import open_dataset
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.sbm import SIZES
from gssc.environment import commit, hardware

BLOCKS = 6


class Model(NamedTuple):
    """Edge probabilities between blocks [6, 6], the class of every block, and whether features tell blocks."""

    probability: Tensor
    class_of_block: Tensor
    told: bool


def _two(inside: float, across: float) -> Tensor:
    return torch.full((BLOCKS, BLOCKS), across).fill_diagonal_(inside)


def _pattern() -> Tensor:
    probability = _two(0.5, 0.35)
    probability[5, :] = probability[:, 5] = 0.5
    return probability


MODELS = {
    "pattern": Model(_pattern(), torch.tensor([0, 0, 0, 0, 0, 1]), told=False),
    "cluster": Model(_two(0.55, 0.25), torch.arange(BLOCKS), told=True),
}


def dense(graphs: FlatGraphs) -> tuple[Tensor, Tensor]:
    """Adjacency matrices [B, n, n], padded, and which rows are nodes [B, n]."""
    sizes = graphs.ptr.diff()
    most = int(sizes.max())
    adjacency = torch.zeros(graphs.num_graphs, most, most)
    graph = torch.arange(graphs.num_graphs).repeat_interleave(graphs.edge_ptr.diff())
    adjacency[graph, graphs.edge_index[0], graphs.edge_index[1]] = 1.0
    return adjacency, torch.arange(most) < sizes.unsqueeze(1)


def told_blocks(graphs: FlatGraphs, is_node: Tensor) -> Tensor:
    """The block of every node whose feature says it, else -1, [B, n]: one-hot column c + 1 is block c."""
    assert graphs.x is not None
    told = torch.full(is_node.shape, -1)
    told[is_node] = graphs.x.argmax(1) - 1
    return told


def start(is_node: Tensor, told: Tensor, generator: torch.Generator) -> Tensor:
    """Blocks of about equal size at random, those that are told besides, [B, n]."""
    noise = torch.rand(is_node.shape, generator=generator).masked_fill(~is_node | (told >= 0), 2.0)
    rank = noise.argsort(1).argsort(1)
    return torch.where(told >= 0, told, rank % BLOCKS)


def posterior(
    adjacency: Tensor, is_node: Tensor, told: Tensor, probability: Tensor, sweeps: int, generator: torch.Generator
) -> Tensor:
    """Probability of every block for every node, [B, n, 6].

    The prior: sizes of blocks uniform within their bounds, given these every assignment alike, so that a node joins a
    block of m others with a weight of m + 1.
    """
    graphs, most = is_node.shape
    every, log_yes, log_no = torch.arange(graphs), probability.log(), (1 - probability).log()
    block = start(is_node, told, generator)
    member = torch.nn.functional.one_hot(block, BLOCKS).float() * is_node.unsqueeze(2)
    linked, size = adjacency @ member, member.sum(1)  # edges into each block [B, n, 6], nodes in each [B, 6]
    total = torch.zeros(graphs, most, BLOCKS)
    burn = sweeps // 3
    for sweep in range(sweeps):
        warmth = min(1.0, 0.1 + 0.9 * sweep / max(burn, 1))
        for u in range(most):
            own = block[:, u]
            others = size.scatter_add(1, own.unsqueeze(1), -is_node[:, u : u + 1].float())
            edges = linked[:, u]
            score = edges @ log_yes + (others - edges) @ log_no
            weight = warmth * score + torch.log(others + 1.0)
            weight = weight.masked_fill(others + 1.0 >= SIZES[1], -torch.inf)
            # Who would leave a block too small stays.
            stays = others[every, own] < SIZES[0]
            known = torch.where(stays, own, torch.where(told[:, u] >= 0, told[:, u], -1))
            fixed = torch.nn.functional.one_hot(known.clamp(min=0), BLOCKS).bool()
            weight = weight.masked_fill((known >= 0).unsqueeze(1) & ~fixed, -torch.inf)
            weight = torch.where(weight.isinf().all(1, keepdim=True), fixed.float().log(), weight)
            chance = weight.softmax(1)
            if sweep >= burn:
                total[:, u] += chance
            new = torch.multinomial(chance, 1, generator=generator).view(-1)
            moved = (new != own) & is_node[:, u]
            at = moved.nonzero().view(-1)
            linked[at, :, own[at]] -= adjacency[at, u]
            linked[at, :, new[at]] += adjacency[at, u]
            size[at, own[at]] -= 1.0
            size[at, new[at]] += 1.0
            block[at, u] = new[at]
        if bool((told >= 0).any()):
            block = exchanged(block, linked, size, adjacency, told, (log_yes, log_no), warmth, generator)
            member = torch.nn.functional.one_hot(block, BLOCKS).float() * is_node.unsqueeze(2)
            linked, size = adjacency @ member, member.sum(1)
    return total / max(sweeps - burn, 1)


def exchanged(
    block: Tensor, linked: Tensor, size: Tensor, adjacency: Tensor, told: Tensor, logs: tuple[Tensor, Tensor],
    warmth: float, generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """Blocks after pairs of them have been offered to exchange their nodes, but for the one of each that is told.

    Node by node, blocks that have grown around the wrong names would never find the right ones. Only edges between
    others and those that are told become more or less likely.
    """
    graphs = torch.arange(len(block))
    at = (told.unsqueeze(1) == torch.arange(BLOCKS).view(1, -1, 1)).float().argmax(2)  # who is told, by block [B, 6]
    among = adjacency[graphs.view(-1, 1, 1), at.unsqueeze(2), at.unsqueeze(1)]
    edges, others = linked[graphs.unsqueeze(1), at] - among, size.unsqueeze(1) - 1.0
    yes, no = (log[0, 0] - log[0, 1] for log in logs)
    score = warmth * (edges * yes + (others - edges) * no)  # of who is told a, if in one block with the nodes of b
    holds = torch.arange(BLOCKS).repeat(len(block), 1)
    for a, b in combinations(range(BLOCKS), 2):
        gain = score[:, a, b] + score[:, b, a] - score[:, a, a] - score[:, b, b]
        accepted = torch.rand(len(block), generator=generator).log() < gain
        swapped = [c if c not in (a, b) else a + b - c for c in range(BLOCKS)]
        score = torch.where(accepted.view(-1, 1, 1), score[:, :, swapped], score)
        holds = torch.where(accepted.unsqueeze(1), holds[:, swapped], holds)
    return torch.where(told >= 0, block, holds.argsort(1).gather(1, block))


def line(name: str, graphs: FlatGraphs, sweeps: int, chains: int = 2) -> list[float]:
    """Class-averaged accuracy in percent of each chain by itself, then of all together."""
    model = MODELS[name]
    adjacency, is_node = dense(graphs)
    told = told_blocks(graphs, is_node) if model.told else torch.full(is_node.shape, -1)
    classes = int(model.class_of_block.max()) + 1
    share = torch.bincount(graphs.y, minlength=classes) / graphs.y.numel()
    found = []
    for chain in range(chains):
        blocks = posterior(adjacency, is_node, told, model.probability, sweeps, torch.Generator().manual_seed(chain))
        by_class = torch.zeros(len(graphs.y), classes).index_add(1, model.class_of_block, blocks[is_node])
        found.append(by_class / share)
    scores = []
    for chance in [*found, torch.stack(found).mean(0)]:
        right = (chance.argmax(1) == graphs.y).double()
        scores.append(100 * float(torch.stack([right[graphs.y == label].mean() for label in range(classes)]).mean()))
    return scores


def main(words: list[str] | None = None) -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*MODELS])
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--generate", action="store_true", help="generate the graphs instead of reading files")
    parser.add_argument("--graphs", type=int, help="of the test set; all of them by default")
    parser.add_argument("--sweeps", type=int, default=150)
    options = parser.parse_args(words)
    for name in options.names:
        graphs = open_dataset(name, options.data_root, generate=options.generate).splits["test"]
        graphs = graphs.part(0, options.graphs or graphs.num_graphs, "node")
        begin = time.perf_counter()
        *chains, together = line(name, graphs, options.sweeps)
        each = ", ".join(f"{score:.2f}" for score in chains)
        print(
            f"{name}: {together:.2f} % (chains {each}; {graphs.num_graphs:,} test graphs, {options.sweeps} sweeps, "
            f"{time.perf_counter() - begin:.0f} s, {hardware()}, commit {commit()})",
            flush=True,
        )


if __name__ == "__main__":
    main()
