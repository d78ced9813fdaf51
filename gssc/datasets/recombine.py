"""New graphs from pieces of given ones: two are cut at a bridge each, and a piece of one is joined to one of the other.

With bridges a-x and b-y of the same features in two graphs,

    {a-x, b-y}  →  {a-b, x-y},

and the component with a-b is a new graph: a crossover, as genetic algorithms make it of molecules. Every node keeps its
features, its degree and the features of its edges, so that atoms that know their bonds go on to be right.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from gssc.checks import check_positive, fail
from gssc.datasets.bridges import Bridges, find_bridges
from gssc.datasets.flat import FlatGraphs, expand, pointers

SMALLEST_PIECE = 3  # nodes: smaller ones would exchange leaves, and hardly make another graph


def recombine(graphs: FlatGraphs, count: int, seed: int, rows: Literal["graph", "node"] = "graph") -> FlatGraphs:
    """``count`` new graphs; which ones is a function of ``seed``.

    The first bridge is one of a random graph that has any, the second one of its kind. The larger piece of one is
    joined to the smaller one of the other, so that sizes stay what they are on average. What is to be predicted of the
    new graphs is not known: ``y`` has rows of zeros.

    Args:
        graphs: Undirected: every edge stands in both directions, with the same features, which are categories or none.
        count: How many to make.
        seed: Of the random choices.
        rows: What the rows of ``y`` belong to.
    """
    check_positive("count", count)
    _check(graphs)
    ordered, bridges = find_bridges(graphs)
    bridges = bridges.where((bridges.sizes() >= SMALLEST_PIECE).all(1))
    if not bridges.start.numel():
        fail("graphs", f"some with a bridge between pieces of {SMALLEST_PIECE} nodes or more", "none with one")
    generator = torch.Generator().manual_seed(seed)
    pair = [bridges.where(chosen) for chosen in _draw(ordered, bridges, count, generator)]
    larger = torch.rand(count, generator=generator) < 0.5
    joined = _join(ordered, [_piece(pair[0], larger), _piece(pair[1], ~larger)])
    length = joined.num_nodes if rows == "node" else count
    mask = None if graphs.mask is None else torch.ones(length, dtype=torch.bool)
    return replace(joined, y=graphs.y.new_zeros(length, *graphs.y.shape[1:]), mask=mask)


def _check(graphs: FlatGraphs) -> None:
    if graphs.weight is not None:
        fail("graphs", "no edge weights where graphs are recombined", "edge weights")
    if graphs.edge_attr is not None and graphs.edge_attr.is_floating_point():
        fail("edge_attr", "categories where graphs are recombined", str(graphs.edge_attr.dtype))
    graphs = graphs.sorted_by_destination()
    source, destination = graphs.ends()
    turned = torch.argsort(source * max(graphs.num_nodes, 1) + destination, stable=True)
    if not torch.equal(torch.stack([destination, source])[:, turned], torch.stack([source, destination])):
        fail("graphs", "every edge in both directions where graphs are recombined", "directed edges")
    if graphs.edge_attr is not None and not torch.equal(graphs.edge_attr[turned], graphs.edge_attr):
        fail("edge_attr", "the same in both directions of an edge where graphs are recombined", "different features")


def _draw(graphs: FlatGraphs, bridges: Bridges, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers of pairs of bridges with the same features; one of k bridges of its graph is drawn with weight 1 / k."""
    owner = torch.searchsorted(graphs.ptr, bridges.start, right=True) - 1
    kinds = torch.zeros_like(owner)
    if graphs.edge_attr is not None:
        features = graphs.edge_attr[_edge(graphs, bridges.above, bridges.start)]
        kinds = torch.unique(features, dim=0, return_inverse=True)[1]
    by_kind = torch.argsort(kinds, stable=True)
    weights = 1.0 / torch.bincount(owner)[owner[by_kind]].double()
    ends = pointers(weights)
    places = pointers(torch.bincount(kinds))

    def draw(start: Tensor, stop: Tensor) -> Tensor:
        """A bridge for each of these ranges of ``by_kind``."""
        share = torch.rand(count, generator=generator, dtype=torch.float64)
        at = torch.searchsorted(ends, torch.lerp(ends[start], ends[stop], share), right=True) - 1
        return by_kind[torch.minimum(torch.maximum(at, start), stop - 1)]

    first = draw(torch.zeros(count, dtype=torch.long), torch.full((count,), len(by_kind)))
    return first, draw(places[kinds[first]], places[kinds[first] + 1])


def _edge(graphs: FlatGraphs, source: Tensor, destination: Tensor) -> Tensor:
    """Numbers of the edges between these nodes; edges are sorted."""
    ends = graphs.ends()
    return torch.searchsorted(ends[1] * graphs.num_nodes + ends[0], destination * graphs.num_nodes + source)


def _piece(bridges: Bridges, larger: Tensor) -> Tensor:
    """The larger or the smaller piece of every bridge, [count, 6]: two ranges of nodes, and the ends of the bridge.

    The first end is inside of the piece, the second outside.
    """
    above, below = bridges.sizes().unbind(1)
    is_below = (below > above) == larger
    b = bridges
    inner = torch.stack([b.start, b.stop, b.stop, b.stop, b.start, b.above], 1)
    outer = torch.stack([b.first, b.start, b.stop, b.last, b.above, b.start], 1)
    return torch.where(is_below[:, None], inner, outer)


def _join(graphs: FlatGraphs, pieces: list[Tensor]) -> FlatGraphs:
    """A graph of every two pieces: their nodes, the edges into these, and each cut edge coming from the other piece."""
    both = torch.stack(pieces, 1)  # [count, 2, 6]
    starts, stops = both[..., 0:4:2], both[..., 1:4:2]  # [count, 2 pieces, 2 ranges]
    lengths = stops - starts
    ptr = pointers(lengths.sum((1, 2)))
    offsets = (lengths.flatten().cumsum(0) - lengths.flatten()).view_as(lengths) - ptr[:-1, None, None]
    nodes = expand(starts.flatten(), lengths.flatten())

    ends = graphs.ends()
    into = torch.searchsorted(ends[1], torch.arange(graphs.num_nodes + 1))
    edge_counts = into[stops] - into[starts]
    edges = expand(into[starts].flatten(), edge_counts.flatten())
    of_range = torch.arange(lengths.numel()).repeat_interleave(edge_counts.flatten())
    of_piece = of_range // 2

    def renamed(node: Tensor, piece: Tensor) -> Tensor:
        """Numbers in the new graphs of nodes of these pieces."""
        second = (node >= stops.view(-1, 2)[piece, 0]).long()
        return node - starts.view(-1, 2)[piece, second] + offsets.view(-1, 2)[piece, second]

    source, destination = ends[:, edges]
    other = of_piece ^ 1
    inside, outside = both[..., 4].flatten(), both[..., 5].flatten()
    cut = (destination == inside[of_piece]) & (source == outside[of_piece])
    source, at = torch.where(cut, inside[other], source), torch.where(cut, other, of_piece)
    return FlatGraphs(
        ptr,
        pointers(edge_counts.sum((1, 2))),
        torch.stack([renamed(source, at), renamed(destination, of_piece)]),
        None if graphs.x is None else graphs.x[nodes],
        None if graphs.edge_attr is None else graphs.edge_attr[edges],
        graphs.y,
    )
