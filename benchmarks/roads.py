"""Roads-like graphs of any size, with labels that need 16 hops: no download.

A grid of which some edges are missing, each of the others with a length. The label of a node is the decile of its
eccentricity, the largest length of a shortest path of at most 16 edges from it: exact, by 16 rounds of Bellman and Ford
in the window of 33 × 33 nodes around every node at once.
"""

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data

HOPS, CLASSES = 16, 10
CHUNK = 2_000  # nodes whose windows are open at once: 35 MB


def roads(rows: int, columns: int, missing: float = 0.2, seed: int = 0, labels: bool = True) -> Data:
    """A graph of at most rows × columns nodes with ``x`` [N, 3]: degree, mean and largest length of edges; and masks.

    ``y`` are the deciles; without ``labels`` those of the degree, at once. Half of the nodes are for training.
    """
    generator = np.random.default_rng(seed)
    right, down = (
        np.where(generator.random((rows, columns)) < missing, np.inf, generator.uniform(0.5, 1.5, (rows, columns)))
        for _ in range(2)
    )
    right[:, -1] = down[-1] = np.inf
    number = np.arange(rows * columns).reshape(rows, columns)
    ends = [(number[:, :-1], number[:, 1:], right[:, :-1]), (number[:-1], number[1:], down[:-1])]
    source, target, length = (np.concatenate([end[i].ravel() for end in ends]) for i in range(3))
    there = np.isfinite(length)
    edges = np.stack([source[there], target[there]])
    edges, length = np.concatenate([edges, edges[::-1]], axis=1), np.tile(length[there], 2)
    degree = np.bincount(edges[1], minlength=number.size)
    longest = np.zeros(number.size)
    np.maximum.at(longest, edges[1], length)
    mean = np.bincount(edges[1], length, number.size) / np.maximum(degree, 1)
    value = eccentricity(right, down).ravel() if labels else degree + 1e-9 * np.arange(number.size)
    x = np.stack([degree, mean, longest], axis=1)
    # Roads are connected: the largest component is kept.
    adjacency = sp.coo_array((np.ones(edges.shape[1], dtype=np.int8), tuple(edges)), shape=(number.size, number.size))
    component = connected_components(adjacency, directed=False)[1]
    kept = component == np.bincount(component).argmax()
    inside = kept[edges[0]]
    edges, length, x, value = (kept.cumsum() - 1)[edges[:, inside]], length[inside], x[kept], value[kept]
    label = value.argsort().argsort() * CLASSES // value.size
    part = generator.random(value.size)
    masks = {"train_mask": part < 0.5, "val_mask": (part >= 0.5) & (part < 0.75), "test_mask": part >= 0.75}
    lengths = torch.from_numpy(length).float().unsqueeze(1)
    return Data(
        x=torch.from_numpy(x).float(), edge_index=torch.from_numpy(edges), y=torch.from_numpy(label), edge_attr=lengths,
        **{name: torch.from_numpy(mask) for name, mask in masks.items()},
    )  # fmt: skip


def eccentricity(right: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Of every node, [R, C], from the lengths of the edges to its right and below it [R, C], infinite where none is."""
    size = 2 * HOPS + 1
    windows: list[Tensor] = []
    for length in (right, down):
        padded = np.pad(length.astype(np.float32), HOPS, constant_values=np.inf)
        windows.append(torch.from_numpy(padded).unfold(0, size, 1).unfold(1, size, 1))  # nothing is copied yet
    columns = right.shape[1]
    out = torch.empty(right.size)
    for first in range(0, right.size, CHUNK):
        row, column = np.divmod(np.arange(first, min(first + CHUNK, right.size)), columns)
        across, along = (view[row, column] for view in windows)
        across, along = across[:, :, :-1], along[:, :-1]
        known = torch.full((len(row), size, size), torch.inf)
        known[:, HOPS, HOPS] = 0.0
        for _ in range(HOPS):
            before = known.clone()
            for to, via, edge in (
                (known[:, :, 1:], before[:, :, :-1], across), (known[:, :, :-1], before[:, :, 1:], across),
                (known[:, 1:], before[:, :-1], along), (known[:, :-1], before[:, 1:], along),
            ):  # fmt: skip
                torch.minimum(to, via + edge, out=to)
        out[first : first + len(row)] = known.masked_fill(known.isinf(), 0.0).amax((1, 2))
    return out.view(right.shape).numpy()
