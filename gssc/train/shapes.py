"""A few static sizes for batches, so that a compiled step or a captured graph serves every batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from gssc.checks import fail


@dataclass(frozen=True)
class Shape:
    """Graphs, nodes and edges that a padded batch is filled up to; at least one node is padding."""

    graphs: int
    nodes: int
    edges: int

    def fits(self, graphs: int, nodes: int, edges: int) -> bool:
        return graphs <= self.graphs and nodes < self.nodes and edges <= self.edges

    def check(self, graphs: int, nodes: int, edges: int) -> None:
        """Raise where a batch is too large for this shape."""
        if not self.fits(graphs, nodes, edges):
            fail(
                "batch",
                f"at most {self.graphs} graphs, {self.nodes - 1} nodes, {self.edges} edges",
                (graphs, nodes, edges),
            )


def static_shapes(node_counts: Tensor, edge_counts: Tensor, batch_size: int, granularity: int = 64) -> list[Shape]:
    """Shapes for random batches of a dataset, smallest first: the last one holds any batch.

    Totals of random batches scatter around their mean by sqrt(B) deviations of one graph: half of the batches fit the
    first shape, nearly all the second.
    """
    batch_size = min(batch_size, max(node_counts.numel(), 1))
    totals = []
    for counts in (node_counts, edge_counts):
        values = counts.double()
        mean, deviation = float(values.mean()) * batch_size, float(values.std(unbiased=False)) * batch_size**0.5
        largest = float(values.topk(batch_size).values.sum())
        totals.append([min(mean + spread * deviation, largest) for spread in (0.5, 3.5)] + [largest])

    def rounded(total: float) -> int:
        return (int(total) // granularity + 1) * granularity

    shapes = [Shape(batch_size, rounded(n), rounded(e)) for n, e in zip(*totals, strict=True)]
    return list(dict.fromkeys(shapes))


def smallest_fit(shapes: Sequence[Shape], graphs: int, nodes: int, edges: int) -> Shape:
    """The first shape that holds a batch."""
    for shape in shapes:
        if shape.fits(graphs, nodes, edges):
            return shape
    return fail("batch", f"no larger than {shapes[-1]}", (graphs, nodes, edges))
