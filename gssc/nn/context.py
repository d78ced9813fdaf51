"""What all layers of a model share of a batch, made once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gssc.checks import check_shape, fail
from gssc.ops import EdgePlan, batch_to_ptr, edge_plan
from gssc.padding import check_masks, check_padding

Gains = tuple[Tensor, Tensor | None]


@dataclass
class GraphContext:
    """A packed batch of graphs as its layers see it; `graph_context` makes and checks it.

    Layers take it in place of ``batch``: what would else be counted, sorted or drawn by every layer is here once. Made
    for a batch, not kept beyond it.

    Args:
        nodes: N.
        graphs: G.
        ptr: First node of every graph and, last, N: [G + 1].
        batch: Graph number of every node, sorted, [N]; ``None`` for one graph.
        edge_index: Edges, [2, E]; ``None`` where only global layers are called.
        node_mask: Real nodes of a padded batch, [N]; ``None`` where all are.
        edge_mask: Real edges of a padded batch, [E]; ``None`` where all are.
        largest: A number of nodes that no graph exceeds, but those of padding; ``None``: not known.
        known_degree: Node degrees, [N], where the caller knows better than ``edge_index``.
        known_plan: The order of the edges, where it was made already.
        gains: A and A_s by convolution, where they were made for all layers at once.
        seeds: Of dropout, by module, from ``gssc.ops.dropout_seeds``; modules that are not there draw their own.
        final: The local part whose edge features nobody reads.
    """

    nodes: int
    graphs: int
    ptr: Tensor
    batch: Tensor | None = None
    edge_index: Tensor | None = None
    node_mask: Tensor | None = None
    edge_mask: Tensor | None = None
    largest: int | None = None
    known_degree: Tensor | None = None
    known_plan: EdgePlan | None = None
    gains: Mapping[nn.Module, Gains] = field(default_factory=dict)
    seeds: Mapping[nn.Module, Tensor] = field(default_factory=dict)
    final: nn.Module | None = None

    @property
    def plan(self) -> EdgePlan:
        """Edges in the order of their targets and of their sources; made when it is first asked for."""
        if self.known_plan is None:
            assert self.edge_index is not None
            self.known_plan = edge_plan(self.edge_index, self.nodes)
        return self.known_plan

    @property
    def degree(self) -> Tensor:
        """Number of edges that enter a node, [N], unless the caller knew better."""
        if self.known_degree is None:
            if self.edge_index is None:
                fail("degree", "the degree of every node [N], for degree_scaling", "None")
            ones = torch.ones(self.edge_index.shape[1], device=self.ptr.device)
            zeros = torch.zeros(self.nodes, device=self.ptr.device)
            self.known_degree = zeros.index_add(0, self.edge_index[1], ones)
        return self.known_degree


def graph_context(
    nodes: int,
    graphs: int = 1,
    batch: Tensor | None = None,
    edge_index: Tensor | None = None,
    *,
    ptr: Tensor | None = None,
    degree: Tensor | None = None,
    node_mask: Tensor | None = None,
    edge_mask: Tensor | None = None,
    largest: int | None = None,
    device: torch.device | None = None,
) -> GraphContext:
    """The context of a batch, after a check that its parts fit; ``ptr`` is trusted to agree with ``batch``.

    What looks at values runs on the CPU only: a GPU is not made to wait.
    """
    if edge_index is not None:
        check_shape("edge_index", edge_index, 2, None)
        device = edge_index.device
        check_masks(node_mask, edge_mask, nodes, edge_index.shape[1])
    if graphs < 1:
        fail("batch", "at least one graph", "an empty batch")
    if ptr is None:
        ptr = batch_to_ptr(batch, nodes, graphs, device or torch.device("cpu"))
    check_shape("ptr", ptr, graphs + 1)
    if degree is not None:
        check_shape("degree", degree, nodes)
    if edge_index is not None and device == torch.device("cpu") and not torch.compiler.is_compiling():
        if edge_index.numel() and not (int(edge_index.min()) >= 0 and int(edge_index.max()) < nodes):
            span = f"{int(edge_index.min())}..{int(edge_index.max())}"
            fail("edge_index", f"node numbers in 0..{nodes - 1}", span)
        if node_mask is not None:
            check_padding(node_mask, edge_mask, edge_index, batch)
    return GraphContext(nodes, graphs, ptr, batch, edge_index, node_mask, edge_mask, largest, degree)


def number_of_graphs(per_graph: Tensor | None, batch: Tensor | None) -> int:
    """G, from what has a row for every graph, such as Φ; else by a look at ``batch``."""
    if per_graph is not None:
        return per_graph.shape[0]
    return 1 if batch is None or not batch.numel() else int(batch.max()) + 1
