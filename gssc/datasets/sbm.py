"""PATTERN and CLUSTER generated from their stochastic block models, with the parameters of Dwivedi et al.

PATTERN: is this node part of a planted pattern? A graph has five blocks of 5 to 34 nodes; two nodes are joined with
probability 0.5 within a block and 0.35 across. One of 100 patterns, random graphs of 5 to 34 nodes with edge
probability 0.5 and fixed features, is planted: each of its nodes is joined to each other node with probability 0.5.
Every pattern is planted in equally many graphs. Features are uniform in {0, 1, 2}, one-hot.

CLUSTER: which block does this node belong to? Six blocks of 5 to 34 nodes, probabilities 0.55 and 0.25. In each block
one node's feature is the block's number + 1, all others are 0; one-hot in seven columns.

Nodes are numbered at random. The published graphs were drawn without a seed: these are others from the same model.
"""

import numpy as np
import torch
from torch_geometric.data import Data

SIZES = 5, 35  # from, and below
PATTERNS = 100
GRAPHS = {
    "pattern": {"train": 10_000, "val": 2_000, "test": 2_000},
    "cluster": {"train": 10_000, "val": 1_000, "test": 1_000},
}


def generate_sbm(name: str, seed: int = 0) -> dict[str, list[Data]]:
    """The parts of ``"pattern"`` or ``"cluster"``; the same seed gives the same graphs."""
    rng = np.random.default_rng(seed)
    if name == "cluster":
        return {split: [_cluster(rng) for _ in range(count)] for split, count in GRAPHS[name].items()}
    patterns = [_pattern(rng) for _ in range(PATTERNS)]
    return {
        split: [_planted(rng, *patterns[number % PATTERNS]) for number in range(count)]
        for split, count in GRAPHS[name].items()
    }


def _cluster(rng: np.random.Generator) -> Data:
    blocks = rng.permutation(np.repeat(np.arange(6), rng.integers(*SIZES, size=6)))
    feature = np.zeros(len(blocks), dtype=np.int64)
    # The first node of each block; nodes are in random order already.
    feature[np.unique(blocks, return_index=True)[1]] = np.arange(1, 7)
    return _data(_adjacency(rng, blocks, np.where(np.eye(6, dtype=bool), 0.55, 0.25)), feature, 7, blocks)


def _pattern(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Adjacency matrix and features of a pattern."""
    size = int(rng.integers(*SIZES))
    return _adjacency(rng, np.zeros(size, dtype=np.int64), np.full((1, 1), 0.5)), rng.integers(3, size=size)


def _planted(rng: np.random.Generator, pattern: np.ndarray, features: np.ndarray) -> Data:
    # Block 5 is the pattern, joined to all others as they are within.
    sizes = np.append(rng.integers(*SIZES, size=5), len(pattern))
    probability = np.full((6, 6), 0.35)
    probability[np.arange(5), np.arange(5)] = 0.5
    probability[5, :] = probability[:, 5] = 0.5
    blocks = rng.permutation(np.repeat(np.arange(6), sizes))
    adjacency = _adjacency(rng, blocks, probability)
    feature = rng.integers(3, size=len(blocks))
    places = rng.permutation(np.flatnonzero(blocks == 5))
    adjacency[np.ix_(places, places)] = pattern
    feature[places] = features
    return _data(adjacency, feature, 3, (blocks == 5).astype(np.int64))


def _adjacency(rng: np.random.Generator, blocks: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """A symmetric random matrix [n, n] without a diagonal; entry i, j is true with the probability of their blocks."""
    high, low = np.tril_indices(len(blocks), -1)
    joined = rng.random(len(high)) < probability[blocks[high], blocks[low]]
    adjacency = np.zeros((len(blocks), len(blocks)), dtype=bool)
    adjacency[high, low] = adjacency[low, high] = joined
    return adjacency


def _data(adjacency: np.ndarray, feature: np.ndarray, kinds: int, y: np.ndarray) -> Data:
    edge_index = torch.from_numpy(np.stack(np.nonzero(adjacency)))
    x = torch.from_numpy(np.eye(kinds)[feature]).to(torch.get_default_dtype())
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(y))
