"""What all layers and ops share of a batch, made once: where graphs begin, masks, degrees, edges in order, seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gssc.checks import check_shape, fail
from gssc.ops.halo import Halo
from gssc.ops.op import op
from gssc.ops.triton_support import HAS_TRITON

Gains = tuple[Tensor, Tensor | None]
SEED_WORDS = 4  # two are used; four keep rows of a table of seeds aligned


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
        seeds: Of dropout, by module, from ``gssc.ops.new_seeds``; modules that are not there draw their own.
        final: The local part whose edge features nobody reads.
        expander: Of every node, to which it is joined, [N, degree / 2], see `gssc.ExpanderGraph`.
        edge_attr: Edge features, [E, C], for a global part that says that it ``reads_edges``.
        carried: What global parts hand from layer to layer.
        halo: Of one graph that several processes hold: nodes, degrees and eigenvectors are those of the own nodes,
            while ``edge_index`` numbers those of the halo behind them.
        reduce: With a halo: makes sums over own nodes those over all; differentiable.
        own: Of nodes and halo: how many come first that are the own ones, of which alone a local part need tell.
        entering: Edges that enter each node from another one, [N], where ``edge_index`` does not tell.
        around: The context of own nodes and halo, once `begin_extend` has made it.
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
    known_plan: "EdgePlan | None" = None
    gains: Mapping[nn.Module, Gains] = field(default_factory=dict)
    seeds: Mapping[nn.Module, Tensor] = field(default_factory=dict)
    final: nn.Module | None = None
    expander: Tensor | None = None
    edge_attr: Tensor | None = None
    carried: dict[str, Any] = field(default_factory=dict)

    def spread(self, rows: Tensor) -> Tensor:
        """What graphs have, [G, ...], at each of their nodes, [N, ...]."""
        one = self.batch is None
        return rows.expand(self.nodes, *rows.shape[1:]) if one else rows.index_select(0, self.batch)  # type: ignore[arg-type]

    halo: Halo | None = None
    reduce: Callable[[Tensor], Tensor] | None = None
    own: int | None = None
    entering: Tensor | None = None
    around: "GraphContext | None" = None

    @property
    def plan(self) -> "EdgePlan":
        """Edges in the order of their targets and of their sources; made when it is first asked for."""
        if self.known_plan is None:
            assert self.edge_index is not None
            self.known_plan = edge_plan(self.edge_index, self.nodes)
        return self.known_plan

    @property
    def sizes(self) -> Tensor:
        """Nodes of every graph, [G], also of one that several processes hold."""
        counts = torch.diff(self.ptr)
        return counts if self.halo is None else torch.full_like(counts, self.halo.nodes)

    def begin_extend(self, x: Tensor) -> "Callable[[], tuple[Tensor, GraphContext]]":
        """Begin to fetch the halo: x with its rows behind it, [N + H, C], and the context of both, when called."""
        halo = self.halo
        if halo is None:
            return lambda: (x, self)
        if self.around is None:
            nodes = self.nodes + halo.size
            alone = replace(self, halo=None, reduce=None, known_plan=None, known_degree=None)
            ptr = torch.arange(2, device=self.ptr.device) * nodes
            self.around = replace(alone, nodes=nodes, ptr=ptr, own=self.nodes, entering=halo.entering)
        around, extended = self.around, halo.begin_extend(x)
        return lambda: (extended(), around)

    @property
    def begin_reduce(self) -> Callable[[Tensor], Callable[[], Tensor]] | None:
        """As ``reduce`` in two steps: what the first returns waits for the sum."""
        return None if self.halo is None else self.halo.begin_sum

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
    seeded: Sequence[nn.Module] = (),
    halo: Halo | None = None,
) -> GraphContext:
    """The context of a batch, after a check that its parts fit; ``ptr`` is trusted to agree with ``batch``.

    What looks at values runs on the CPU only: a GPU is not made to wait. Modules that are to be ``seeded`` get their
    seeds of dropout in one draw, where kernels run; elsewhere dropout draws otherwise.
    """
    if edge_index is not None:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            check_shape("edge_index", edge_index, 2, None)
        device = edge_index.device
        if node_mask is not None or edge_mask is not None:
            _check_masks(node_mask, edge_mask, nodes, edge_index.shape[1])
    if graphs < 1:
        fail("batch", "at least one graph", "an empty batch")
    if ptr is None:
        ptr = batch_to_ptr(batch, nodes, graphs, device or torch.device("cpu"))
    if ptr.dim() != 1 or ptr.shape[0] != graphs + 1:
        check_shape("ptr", ptr, graphs + 1)
    if degree is not None and degree.shape != (nodes,):
        check_shape("degree", degree, nodes)
    if edge_index is not None and edge_index.device.type == "cpu" and not torch.compiler.is_compiling():
        known = nodes if halo is None else nodes + halo.size
        if edge_index.numel() and not (int(edge_index.min()) >= 0 and int(edge_index.max()) < known):
            span = f"{int(edge_index.min())}..{int(edge_index.max())}"
            fail("edge_index", f"node numbers in 0..{known - 1}", span)
        if node_mask is not None:
            _check_padding(node_mask, edge_mask, edge_index, batch)
    if halo is not None and (graphs > 1 or node_mask is not None):
        fail("halo", "None, but for one graph without padding", f"{graphs} graphs")
    context = GraphContext(nodes, graphs, ptr, batch, edge_index, node_mask, edge_mask, largest, degree)
    if halo is not None:
        context.halo, context.reduce = halo, halo.sum
    if seeded and ptr.is_cuda and HAS_TRITON:
        context.seeds = dict(zip(seeded, new_seeds(len(seeded), ptr.device).unbind(), strict=True))
    return context


def undirected_degree(edge_index: Tensor, nodes: int) -> Tensor:
    """With how many nodes edges join a node, in either direction, each counted once: [N]. Nothing waits for a GPU."""
    source, target = edge_index.long()
    pairs = torch.cat([source * nodes + target, target * nodes + source]).sort().values
    new = torch.cat([pairs.new_ones(1), pairs[1:] != pairs[:-1]])[: pairs.numel()].to(torch.get_default_dtype())
    return new.new_zeros(nodes).index_add(0, pairs // max(nodes, 1), new)


def number_of_graphs(per_graph: Tensor | None, batch: Tensor | None) -> int:
    """G, from what has a row for every graph, such as Φ; else by a look at ``batch``."""
    if per_graph is not None:
        return per_graph.shape[0]
    return 1 if batch is None or not batch.numel() else int(batch.max()) + 1


def _check_masks(node_mask: Tensor | None, edge_mask: Tensor | None, nodes: int, edges: int) -> None:
    """Fail unless the masks are boolean and fit."""
    for name, mask, rows in (("node_mask", node_mask, nodes), ("edge_mask", edge_mask, edges)):
        if mask is not None:
            check_shape(name, mask, rows)
            if mask.dtype != torch.bool:
                fail(name, "a boolean tensor (True = real)", mask.dtype)
    if node_mask is None and edge_mask is not None:
        fail("node_mask", "given where edge_mask is: padding edges join padding nodes", "None")


def _check_padding(node_mask: Tensor, edge_mask: Tensor | None, edge_index: Tensor, batch: Tensor | None) -> None:
    """Fail where an edge or a graph holds real and padding nodes. Looks at values: for the CPU."""
    if batch is None:
        fail("batch", "the graph number of every node, where node_mask is given", "None")
    if not bool((node_mask[edge_index] == (True if edge_mask is None else edge_mask)).all()):
        fail("edge_mask", "real edges among real nodes and padding edges among padding nodes", "others")
    if bool((node_mask[1:] != node_mask[:-1])[batch[1:] == batch[:-1]].any()):
        fail("node_mask", "real nodes and padding nodes in different graphs", "a graph with both")


def batch_to_ptr(batch: Tensor | None, num_nodes: int, num_graphs: int, device: torch.device) -> Tensor:
    """Where each graph of PyG's sorted ``batch`` [N] begins, [G + 1]; ``batch=None`` is one graph.

    That it is sorted is checked on the CPU only; on a GPU nothing waits for the device.
    """
    if batch is None:
        if num_graphs != 1:
            fail("batch", f"the graph number of every node for {num_graphs} graphs", "None")
        return torch.arange(2, dtype=torch.int64, device=device) * num_nodes
    if batch.shape != (num_nodes,):
        check_shape("batch", batch, num_nodes)
    if batch.dtype not in (torch.int64, torch.int32):
        fail("batch", "an integer tensor", batch.dtype)
    return _batch_to_ptr(batch, num_graphs)


@op("gssc::batch_to_ptr")
def _batch_to_ptr(batch: Tensor, num_graphs: int) -> Tensor:
    if batch.numel() and batch.device.type == "cpu":
        if bool((batch[1:] < batch[:-1]).any()):
            fail("batch", "graph numbers in ascending order (sorted, as PyG makes them)", "an unsorted tensor")
        low, high = int(batch[0]), int(batch[-1])
        if low < 0 or high >= num_graphs:
            fail("batch", f"graph numbers in 0..{num_graphs - 1}", f"{low}..{high}")
    numbers = torch.arange(num_graphs + 1, dtype=batch.dtype, device=batch.device)
    return torch.searchsorted(batch.contiguous(), numbers)


@_batch_to_ptr.register_fake
def _(batch: Tensor, num_graphs: int) -> Tensor:
    return torch.empty(num_graphs + 1, dtype=torch.int64, device=batch.device)


class EdgePlan(NamedTuple):
    """Edges in the order of their targets and in that of their sources: permutations and starts, int32.

    A sum over the edges that enter a node, or leave it, is then a loop of one program over a stretch of edges: no
    atomics, so results repeat bit by bit.

    Position p of the order by targets is edge ``by_target[p]``, which comes from node ``sources[p]``; node i is
    entered by positions ``target_ptr[i]`` to ``target_ptr[i + 1]``. Likewise for the order by sources.
    """

    by_target: Tensor  # [E]
    sources: Tensor  # [E]
    target_ptr: Tensor  # [N + 1]
    by_source: Tensor  # [E]
    targets: Tensor  # [E]
    source_ptr: Tensor  # [N + 1]


def edge_plan(edge_index: Tensor, num_nodes: int) -> EdgePlan:
    """The plan of ``edge_index`` [2, E], made without a look at it from the host, and with one sort for both orders."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        check_shape("edge_index", edge_index, 2, None)
    edges = edge_index.shape[1]
    ends = edge_index.to(torch.int32).contiguous()
    # Entry p < E is edge p under its target, entry E + p the same edge under its source, behind all targets.
    first = torch.arange(2 * num_nodes + 1, dtype=torch.int32, device=edge_index.device)
    keys, order = torch.sort(torch.cat([ends[1], ends[0] + num_nodes]), stable=True)
    ptr = torch.searchsorted(keys, first, out_int32=True)
    others = ends.view(-1)[order]  # the other end of each
    places = order.to(torch.int32)
    by_target, by_source = places[:edges], places[edges:] - edges
    target_ptr, source_ptr = ptr[: num_nodes + 1], ptr[num_nodes:] - edges
    # Copied: where it begins, kernels would else be compiled for tensors that are not aligned, too.
    return EdgePlan(by_target, others[:edges], target_ptr, by_source, others[edges:].clone(), source_ptr)


def new_seeds(count: int, device: torch.device) -> Tensor:
    """Seeds of dropout in kernels [count, 4], drawn on the device by its default generator in one launch."""
    return torch.randint(-(2**31), 2**31, (count, SEED_WORDS), dtype=torch.int32, device=device)
