"""Generated graphs of the size and shape of PascalVOC-SP: regions of an image and their neighbours."""

import numpy as np
import torch
from scipy.spatial import Delaunay

from gssc.datasets.flat import FlatGraphs, GraphDataset
from gssc.datasets.open import finish
from gssc.datasets.specs import SPECS

# Of PascalVOC-SP: graphs of each part, nodes per graph.
SIZES = {"train": 8_498, "val": 1_428, "test": 1_429}
NODES, DEVIATION, SMALLEST, LARGEST = 479.4, 15.0, 395, 500


def voc_like(sizes: dict[str, int] | None = None, seed: int = 0) -> GraphDataset:
    """Triangulations of scattered points with the features and labels of ``voc-sp`` drawn at random.

    A region of an image touches about six others: the triangulation of about 479 points has about 2,700 directed edges,
    where PascalVOC-SP has 2,710 on average.
    """
    spec = SPECS["voc-sp"]
    random = np.random.default_rng(seed)
    return finish("voc-sp", spec, {split: _part(count, random) for split, count in (sizes or SIZES).items()})


def _part(count: int, random: np.random.Generator) -> FlatGraphs:
    nodes = np.clip(np.rint(NODES + DEVIATION * random.standard_normal(count)), SMALLEST, LARGEST).astype(np.int64)
    edges = [triangulated(random.random((n, 2))) for n in nodes.tolist()]
    ptr, edge_ptr = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (nodes, [e.shape[1] for e in edges]))
    generator = torch.Generator().manual_seed(int(random.integers(1 << 62)))
    return FlatGraphs(
        torch.from_numpy(ptr),
        torch.from_numpy(edge_ptr),
        torch.from_numpy(np.concatenate(edges, axis=1)),
        torch.randn(int(ptr[-1]), 14, generator=generator),
        torch.randn(int(edge_ptr[-1]), 2, generator=generator),
        torch.randint(21, (int(ptr[-1]),), generator=generator),
    )


def triangulated(points: np.ndarray) -> np.ndarray:
    """Both directions of every edge of the Delaunay triangulation of points [n, 2]."""
    corners = Delaunay(points).simplices.astype(np.int64)
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return np.stack(np.divmod(np.unique(both @ [len(points), 1]), len(points)))
