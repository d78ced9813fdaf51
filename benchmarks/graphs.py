"""Generated graphs, the same for the same seed: like molecules, like regions of images, and five kinds of large.

    python -m benchmarks.graphs voc-sp --graphs 64 --out voc-sp.safetensors
    gssc train voc-sp:released --pack voc-sp.safetensors train.epochs=3

What is written are graphs of the size and with the columns of a dataset, features and labels drawn at random: a model
and its training can be tried where the data are not at hand; a score on them says nothing.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.spatial import Delaunay, cKDTree
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from gssc.datasets import FlatGraphs, GraphDataset, flatten, write_pack
from gssc.datasets.open import finish
from gssc.datasets.specs import SPECS

# Of PascalVOC-SP: graphs of each part, nodes per graph.
SIZES = {"train": 8_498, "val": 1_428, "test": 1_429}
NODES, DEVIATION, SMALLEST, LARGEST = 479.4, 15.0, 395, 500


def molecule_like(
    graphs: int, seed: int = 0, mean: float = 23.2, spread: float = 4.5, largest: int = 38, rings: float = 0.155
) -> InMemoryDataset:
    """A collated dataset of connected sparse graphs of the size of ZINC's, about 23 nodes and 25 undirected edges each.

    Node i > 0 hangs on one of the three nodes before it, which makes a long thin tree; then rings of five and six are
    closed between nodes four or five steps apart in number. Both directions of every edge are stored, as PyG does.
    """
    generator = torch.Generator().manual_seed(seed)
    count = (mean + spread * torch.randn(graphs, generator=generator)).round().long().clamp(9, largest)
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), count.cumsum(0)])
    nodes = int(ptr[-1])
    local = torch.arange(nodes) - ptr[:-1].repeat_interleave(count)
    owner = torch.arange(graphs).repeat_interleave(count)
    back = torch.where(
        torch.rand(nodes, generator=generator) < 0.8, 1, torch.randint(1, 4, (nodes,), generator=generator)
    )
    parent = (local - back).clamp(min=0)
    child = local > 0
    reach = torch.randint(4, 6, (nodes,), generator=generator)
    closes = (local >= reach) & (torch.rand(nodes, generator=generator) < rings)
    ends = torch.cat(
        [torch.stack([parent[child], local[child]]), torch.stack([(local - reach)[closes], local[closes]])], dim=1
    )
    graph = torch.cat([owner[child], owner[closes]])
    return collate_edges(torch.cat([ends, ends.flip(0)], dim=1), graph.repeat(2), ptr)


def collate_edges(edge_index: Tensor, graph: Tensor, ptr: Tensor) -> InMemoryDataset:
    """An InMemoryDataset from edges [2, E] in local node numbers, the graph of each, and the node offsets."""
    order = graph.argsort(stable=True)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(graph, minlength=ptr.numel() - 1).cumsum(0)])
    dataset = InMemoryDataset()
    dataset._data = Data(x=torch.ones(int(ptr[-1]), 1), edge_index=edge_index[:, order].contiguous())
    dataset.slices = {"x": ptr, "edge_index": starts}
    return dataset


def zinc_like(graphs: int, seed: int = 0) -> FlatGraphs:
    """Such molecules with atoms, bonds and targets of ``zinc-12k`` drawn at random."""
    dataset = molecule_like(graphs, seed)
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = dataset._data.num_nodes, dataset._data.edge_index.shape[1]
    dataset._data.x = torch.randint(28, (nodes, 1), generator=generator)
    dataset._data.edge_attr = torch.randint(1, 4, (edges, 1), generator=generator)
    dataset._data.y = torch.randn(graphs, generator=generator)
    dataset.slices |= {"edge_attr": dataset.slices["edge_index"], "y": torch.arange(graphs + 1)}
    return flatten(dataset, SPECS["zinc-12k"].task)


def peptide_like(name: str, sizes: dict[str, int], seed: int = 0) -> GraphDataset:
    """Long molecules with the columns of ``peptides-func`` or ``peptides-struct``, drawn at random.

    About 151 atoms and 307 directed edges on average, as in both.
    """
    spec = SPECS[name]
    generator = torch.Generator().manual_seed(seed)

    def drawn(vocabulary: tuple[int, ...], rows: int) -> Tensor:
        return torch.stack([torch.randint(size, (rows,), generator=generator) for size in vocabulary], dim=1)

    splits = {}
    for number, (split, count) in enumerate(sizes.items()):
        dataset = molecule_like(count, len(sizes) * seed + number, mean=151.0, spread=60.0, largest=444, rings=0.02)
        data, slices = dataset._data, dataset.slices
        assert isinstance(spec.node_features, tuple)
        assert isinstance(spec.edge_features, tuple)
        data.edge_attr = drawn(spec.edge_features, data.edge_index.shape[1])
        data.x = drawn(spec.node_features, data.num_nodes)
        data.y = torch.randn(count, spec.task.outputs, generator=generator)
        data.y = (data.y > 1).float() if spec.task.kind == "binary" else data.y
        dataset.slices = slices | {"edge_attr": slices["edge_index"], "y": torch.arange(count + 1)}
        splits[split] = flatten(dataset, spec.task)
    return finish(name, spec, splits)


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


def geometric(n: int, seed: int = 0) -> sp.csr_array:
    """Points in the unit square, joined within the radius that gives 12 neighbours on average."""
    points = np.random.default_rng(seed).random((n, 2))
    pairs = cKDTree(points).query_pairs((12.0 / (np.pi * n)) ** 0.5, output_type="ndarray")
    return _connected(pairs[:, 0], pairs[:, 1], n)


def grid(n: int, seed: int = 0) -> sp.csr_array:
    """The square grid nearest to n nodes; its eigenvalues come in pairs."""
    side = round(n**0.5)
    index = np.arange(side * side).reshape(side, side)
    first = np.concatenate([index[:, :-1].ravel(), index[:-1].ravel()])
    second = np.concatenate([index[:, 1:].ravel(), index[1:].ravel()])
    return _connected(first, second, side * side)


def powerlaw(n: int, seed: int = 0) -> sp.csr_array:
    """Every node joins 5 earlier ones, t = ⌊i u²⌋, u uniform: degrees fall like t^-1/2, a power law of exponent 3."""
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(1, n), 5)
    return _connected(source, (source * rng.random(source.size) ** 2).astype(np.int64), n)


def random(n: int, seed: int = 0) -> sp.csr_array:
    """Uniform random edges, n/1000 neighbours on average up to 100,000 nodes (10 at least), 10 beyond."""
    degree = max(10, n // 1000) if n <= 100_000 else 10
    ends = np.random.default_rng(seed).integers(0, n, (2, n * degree // 2))
    return _connected(ends[0], ends[1], n)


def paper(n: int, seed: int = 0) -> sp.csr_array:
    """Uniform random edges as the paper measures: 1 % of n² directed ones below 10,000 nodes, 0.1 % from there."""
    ends = np.random.default_rng(seed).integers(0, n, (2, n * n // (200 if n < 10_000 else 2000)))
    return _connected(ends[0], ends[1], n)


GRAPHS: dict[str, Callable[[int], sp.csr_array]] = {
    "geometric": geometric,
    "grid": grid,
    "powerlaw": powerlaw,
    "random": random,
    "paper": paper,
}


def _connected(first: np.ndarray, second: np.ndarray, n: int) -> sp.csr_array:
    """The largest component of the simple graph with these edges."""
    proper = first != second
    ends = np.concatenate([first[proper], second[proper]]), np.concatenate([second[proper], first[proper]])
    a = sp.csr_array((np.ones(ends[0].size), ends), shape=(n, n))
    a.sum_duplicates()
    a.data[:] = 1.0
    _, label = connected_components(a, directed=True, connection="strong")
    keep = np.flatnonzero(label == np.bincount(label).argmax())
    return a if keep.size == n else a[keep][:, keep].tocsr()


def main(arguments: list[str] | None = None) -> None:
    """Write a pack of graphs that look like those of a dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["voc-sp", "peptides-func", "peptides-struct"])
    parser.add_argument("--graphs", type=int, default=64, help="for training; a quarter as many for the other parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("generated.safetensors"))
    options = parser.parse_args(arguments)
    few = -(-options.graphs // 4)
    sizes = {"train": options.graphs, "val": few, "test": few}
    if options.name == "voc-sp":
        dataset = voc_like(sizes, options.seed)
    else:
        dataset = peptide_like(options.name, sizes, options.seed)
    print(f"{options.out}: {write_pack(dataset, options.out):,} bytes")


if __name__ == "__main__":
    main()
