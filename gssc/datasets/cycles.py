"""Cycle counting: the published graphs where they are in place, generated ones of the same kind otherwise."""

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from gssc.checks import fail
from gssc.datasets.synthetic import CYCLE_LENGTHS, cycle_counting

GRAPHS, TRAIN, VALIDATION = 5000, 1500, 1000


def load_cycles(length: int, root: Path, seed: int = 0, *, generate: bool = False) -> dict[str, list[Data]]:
    """Graphs with ``y [n, 1]``, the number of cycles of this length through every node, by split.

    Read from ``ROOT/cycles/raw/count_cycle.npz`` where that file is; otherwise 5,000 graphs are generated and split
    1,500 / 1,000 / 2,500.
    """
    column = CYCLE_LENGTHS.index(length)
    path = root / "cycles" / "raw" / "count_cycle.npz"
    if path.exists() and not generate:
        graphs, splits = _read(path)
    else:
        graphs = cycle_counting(GRAPHS, seed)
        splits = dict(
            zip(("train", "val", "test"), np.split(np.arange(GRAPHS), [TRAIN, TRAIN + VALIDATION]), strict=True)
        )
    for graph in graphs:
        graph.y = graph.y[:, column : column + 1]
    return {split: [graphs[i] for i in numbers] for split, numbers in splits.items()}


def _read(path: Path) -> tuple[list[Data], dict[str, np.ndarray]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        nodes, edges = arrays["n_nodes"].astype(np.int64), arrays["n_edges"].astype(np.int64)
        ends = np.stack([arrays["edge_u"], arrays["edge_v"]]).astype(np.int64)
        counts = torch.from_numpy(arrays["y"]).to(torch.get_default_dtype())
        splits = {split: arrays[f"{split}_idx"] for split in ("train", "val", "test")}
    except (KeyError, ValueError, OSError) as error:
        fail("count_cycle.npz", "the arrays n_nodes, n_edges, edge_u, edge_v, y and *_idx", f"{path}: {error}")
    graphs = []
    for pairs, y, n in zip(
        np.split(ends, np.cumsum(edges)[:-1], axis=1), counts.split(nodes.tolist()), nodes.tolist(), strict=True
    ):
        both = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
        graphs.append(Data(edge_index=both, y=y, num_nodes=n))
    return graphs, splits
