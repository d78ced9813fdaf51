"""Bridges: edges without which a graph falls apart, and the two pieces that each of them joins."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gssc.datasets.flat import FlatGraphs


@dataclass(frozen=True)
class Bridges:
    """The bridges of many graphs whose nodes are numbered so that one of the two pieces is a range.

    Bridge b leads from node ``above[b]`` to ``start[b]``. Nodes ``start[b]:stop[b]`` are the piece below it, the others
    of ``first[b]:last[b]``, its connected component, are the piece above it; nodes count through all graphs.
    """

    above: Tensor
    start: Tensor
    stop: Tensor
    first: Tensor
    last: Tensor

    def sizes(self) -> Tensor:
        """Nodes of the pieces above and below every bridge, [bridges, 2]."""
        below = self.stop - self.start
        return torch.stack([self.last - self.first - below, below], 1)

    def where(self, chosen: Tensor) -> "Bridges":
        """Some of them, by a mask or by numbers."""
        return Bridges(*(values[chosen] for values in vars(self).values()))


def find_bridges(graphs: FlatGraphs) -> tuple[FlatGraphs, Bridges]:
    """The same graphs with their nodes in the order of a depth-first search, without targets, and all their bridges.

    Every edge must stand in both directions. Edges come back sorted.
    """
    graphs = graphs.sorted_by_destination()
    sources, destinations = ends = graphs.ends()
    edges_into = torch.searchsorted(destinations, torch.arange(graphs.num_nodes + 1))
    order, found = _search(sources.tolist(), edges_into.tolist())
    # Graphs are searched one after another, so that each keeps its range of nodes.
    ordered = torch.tensor(order, dtype=torch.long)
    place = torch.empty_like(ordered)
    place[ordered] = torch.arange(len(order))
    renamed = FlatGraphs(
        graphs.ptr,
        graphs.edge_ptr,
        graphs.edge_index + place[ends] - ends,
        None if graphs.x is None else graphs.x[ordered],
        graphs.edge_attr,
        graphs.y[:0],
        graphs.weight,
    )
    return renamed.sorted_by_destination(), Bridges(*torch.tensor(found, dtype=torch.long).view(-1, 5).unbind(1))


def _search(sources: list[int], edges_into: list[int]) -> tuple[list[int], list[tuple[int, int, int, int, int]]]:
    """Tarjan's search: nodes in the order in which they are found, and for each bridge the fields of `Bridges`.

    Edges ``edges_into[v]:edges_into[v + 1]`` lead into node v, from ``sources``.
    """
    nodes = len(edges_into) - 1
    place = [-1] * nodes
    # The first place that a node, or one below it, is joined to by another edge than that it was found by.
    reach = [0] * nodes
    to_come = edges_into[:-1]
    order: list[int] = []
    found: list[tuple[int, int, int, int, int]] = []
    for root in range(nodes):
        if place[root] >= 0:
            continue
        first, bridges, path, returned = len(order), [], [root], [True]
        place[root] = reach[root] = first
        order.append(root)
        while path:
            node = path[-1]
            if to_come[node] < edges_into[node + 1]:
                other = sources[to_come[node]]
                to_come[node] += 1
                if place[other] < 0:
                    place[other] = reach[other] = len(order)
                    order.append(other)
                    path.append(other)
                    returned.append(False)
                elif not returned[-1] and other == path[-2]:
                    returned[-1] = True  # the edge it was found by; a second one to the same node is another way
                else:
                    reach[node] = min(reach[node], place[other])
                continue
            path.pop()
            returned.pop()
            if path:
                above = path[-1]
                reach[above] = min(reach[above], reach[node])
                if reach[node] > place[above]:
                    bridges.append((place[above], place[node], len(order)))
        found += [(*bridge, first, len(order)) for bridge in bridges]
    return order, found
