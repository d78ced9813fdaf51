"""Which graphs come when, as tables on the device that captured steps read."""

import torch
from torch import Tensor

from gssc.padding import Shape, smallest_fit, static_shapes
from gssc.train.store import Batch, GraphStore


class Schedule:
    """Batches of one pass over a store as tables on the device: graph numbers of every step, and where it stands."""

    def __init__(self, store: GraphStore, batch_size: int, steps: int) -> None:
        self.store = store
        self.shapes = static_shapes(store.node_counts, store.edge_counts, batch_size)
        self.order = torch.full((steps, self.shapes[0].graphs), store.num_graphs, device=store.device)
        self.at = torch.zeros(1, dtype=torch.long, device=store.device)
        self.next: list[Shape] = []
        self.largest = int(store.node_counts.max()) if store.num_graphs else 0

    @classmethod
    def in_order(cls, store: GraphStore, batch_size: int) -> "Schedule":
        """All graphs, in their order."""
        batches = list(torch.arange(store.num_graphs).split(batch_size))
        schedule = cls(store, batch_size, len(batches))
        schedule.fill(batches)
        return schedule

    def fill(self, batches: list[Tensor], at: int = 0) -> None:
        """Set the batches of a pass; the next step is the one with number ``at``."""
        table = torch.full(self.order.shape, self.store.num_graphs)
        self.next = []
        for row, graphs in zip(table, batches, strict=False):
            row[: graphs.numel()] = graphs
            self.next.append(smallest_fit(self.shapes, graphs.numel(), *self.store.sizes(graphs)))
        self.order.copy_(table)
        self.at.fill_(at)

    def now(self, table: Tensor) -> Tensor:
        """The row of a table that belongs to the step that runs."""
        return table.index_select(0, self.at).squeeze(0)

    def batch(self, shape: Shape) -> Batch:
        """The batch of the step that runs, padded to a shape."""
        batch = self.store.gather(self.now(self.order), shape.nodes, shape.edges, 0, padded=True)
        batch.inputs["largest"] = self.largest
        return batch
