"""GatedGCN between its Linears in Triton: forward makes one tensor of size E, its output, and keeps none of its own.

ℓ_ij = t_i + s_j + Z_ij, with Z the projected edge features, is computed anew in every pass; so are gates.

    forward     Z = eWᵀ + b                                                        a matrix product, where there is e
                1  h_i = Σ_j σ(ℓ) ⊙ b_j / d_i,  d_i = Σ_j σ(ℓ) + ε, moments of ℓ   edges in the order of targets
                2  e' = e + drop(ReLU(γℓ̂ + β)), if anybody needs it                in the order they came, over Z
    backward    Z = eWᵀ + b
                0  u = ∂h / d,  w = u ⊙ h                                          nodes
                1  ∂b_j = Σ_i σ ⊙ u_i,  Σ_i (σ(1-σ) ⊙ (u_i ⊙ b_j - w_i) + γ/√(v+ε) g)
                   Σ_i ℓ̂, Σ_i 1 per node; Σg, Σgℓ̂ over all; from these ∂s_j           sources; g = ∂(γℓ̂ + β)
                2  ∂t_i = Σ_j ∂ℓ,  ∂ℓ over Z                                       targets
                   ∂W = ∂ℓᵀe,  ∂e = ∂ℓW + ∂e' piece by piece, over ∂ℓ              matrix products

    ∂ℓ = σ(1-σ) ⊙ (u_i ⊙ b_j - w_i) + γ/√(v+ε) ⊙ (g - (Σg + ℓ̂ Σgℓ̂)/n)

What nodes tell is t, s and b in three tensors, or t | s | b | a in one [N, 4C], as one product makes it: then a + h is
returned, and the gradient is one tensor too, so that few launches are needed where these are what takes time.

Sums over the edges of a node are made by one program, in order: no atomics. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import fail
from gssc.ops.apart import apart
from gssc.ops.edges.launch import Grid
from gssc.ops.edges.plan import EdgePlan
from gssc.ops.gated_gcn import torch as eager
from gssc.ops.gated_gcn.types import EdgeNorm, GatedOutput, Origin

PIECE = 1 << 14  # edges of which the gradient is multiplied at a time, at least
SPLIT = 1 << 12  # edges over which a product that sums over edges is one sum, at least
LARGEST = 1 << 30  # numbers of one product
MERGED = 256  # partial moments that one step merges


def _width(target: Tensor, source: Tensor | None) -> int:
    """C."""
    return target.shape[1] // 4 if source is None else target.shape[1]


def _parts(target: Tensor, source: Tensor | None, neighbor: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Any]:
    """t, s, b and a [N, C], a = None where the former are given apart; else columns of ``target``."""
    target = target.contiguous()
    if source is None or neighbor is None:
        t, s, b, a = target.unflatten(1, (4, -1)).unbind(1)
        return t, s, b, a
    return target, source.contiguous(), neighbor.contiguous(), None


def _projected(
    edge_attr: Tensor | None, weight: Tensor | None, bias: Tensor | None, into: Tensor | None = None
) -> Tensor | None:
    """eWᵀ + b, of so many edges at a time that no product has 2³¹ numbers: where libraries count in 32 bits."""
    if edge_attr is None or weight is None or bias is None:
        return None
    rows = max(LARGEST // edge_attr.shape[1], 1)
    if into is None:
        if edge_attr.shape[0] <= rows:
            return F.linear(edge_attr, weight, bias)
        into = torch.empty_like(edge_attr)
    for first in range(0, edge_attr.shape[0], rows):
        torch.addmm(bias, edge_attr[first : first + rows], weight.t(), out=into[first : first + rows])
    return into


def _kept_shape(target: Tensor, source: Tensor | None) -> tuple[int, int, int]:
    """Of d and, where the output is not h unrounded, h."""
    alone = source is not None and target.dtype == torch.float32
    return 1 if alone else 2, target.shape[0], _width(target, source)


def _piece(edges: int) -> int:
    """Edges of a piece: aligned, and a small part of a large number."""
    return max(PIECE, -(-edges // 64 // 64) * 64)


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


@torch.library.custom_op("gssc::gated_gcn_fused", mutates_args=())
def gated_gcn_fused(
    target: Tensor,
    source: Tensor | None,
    neighbor: Tensor | None,
    edge_attr: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    edge_index: Tensor,
    mask: Tensor | None,
    seed: Tensor | None,
    by_target: Tensor,
    sources: Tensor,
    target_ptr: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
    x: Tensor | None,
    target_weight: Tensor | None,
    target_bias: Tensor | None,
    source_weight: Tensor | None,
    source_bias: Tensor | None,
    neighbor_weight: Tensor | None,
    neighbor_bias: Tensor | None,
    norm_eps: float,
    training: bool,
    residual: bool,
    eps: float,
    dropout: float,
    need_edges: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Nodes [N, C], edges [E, C] (or [0, C]), statistics [5, C], and what else the backward pass needs.

    Statistics are the mean and 1/√(variance + ε) in use, then mean, Σ(ℓ - mean)² and n of the batch where they were
    needed. The last are d and, in half precision or with a, h unrounded [1 or 2, N, C].
    """
    from gssc.ops.gated_gcn import kernels

    c = _width(target, source)
    grid = Grid(target.shape[0], edge_index.shape[1], c, target.device)
    t, s, b, a = _parts(target, source, neighbor)
    parts = {"PARTS": 1 if a is None else 4}
    edge_attr = None if edge_attr is None else edge_attr.contiguous()
    projected, known = _projected(edge_attr, weight, bias), _bytes(mask)
    nodes = target.new_empty(grid.nodes, c)
    wide: dict[str, Any] = {"dtype": torch.float32, "device": target.device}
    stats, kept = torch.empty(5, c, **wide), torch.empty(_kept_shape(target, source), **wide)
    moments = training and scale is not None
    sums = [torch.empty(grid.programs, *shape, **wide) if moments else None for shape in ((), (c,), (c,))]
    if grid.nodes:
        tensors = (t, s, b, a, projected, by_target, sources, target_ptr, known, nodes, kept, *sums, eps)
        flags = {"HAS_EDGES": projected is not None, "HAS_MASK": moments and known is not None, "MOMENTS": moments}
        grid.over_nodes(kernels.forward_nodes, *tensors, KEEP=kept.shape[0] == 2, **flags, **parts)
    if running_mean is None or running_variance is None:
        stats.zero_()
    else:
        merged, programs = (sums, grid.programs) if moments else ([stats] * 3, 0)
        kernels.merge_moments[(-(-c // 32),)](
            *merged, running_mean, running_variance, stats, norm_eps, programs,
            C=c, ROWS=MERGED, BLOCK_C=32, num_warps=8,
        )  # fmt: skip
    if not need_edges:
        edges = target.new_empty(0, c)
    else:
        edges = target.new_empty(grid.edges, c) if projected is None else projected
    if edges.shape[0]:
        vectors = (stats, scale, shift, seed)
        inputs = (t, s, projected, edge_attr, edge_index.contiguous(), known, *vectors, edges, dropout)
        grid.over_rows(
            kernels.forward_edges, grid.edges, *inputs, HAS_EDGES=projected is not None, NORM=scale is not None,
            RESIDUAL=residual and edge_attr is not None, HAS_MASK=known is not None, DROPOUT=seed is not None, **parts,
        )  # fmt: skip
    return nodes, edges, stats, kept


@gated_gcn_fused.register_fake
def _(target: Tensor, source: Tensor | None, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    edge_index, need_edges, c = others[8], others[-1], _width(target, source)
    wide: dict[str, Any] = {"dtype": torch.float32, "device": target.device}
    edges = target.new_empty(edge_index.shape[1] if need_edges else 0, c)
    kept = torch.empty(_kept_shape(target, source), **wide)
    return target.new_empty(target.shape[0], c), edges, torch.empty(5, c, **wide), kept


@torch.library.custom_op("gssc::gated_gcn_fused_backward", mutates_args=())
def gated_gcn_fused_backward(
    grad_nodes: Tensor,
    grad_edges: Tensor | None,
    target: Tensor,
    source: Tensor | None,
    neighbor: Tensor | None,
    edge_attr: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    by_target: Tensor,
    sources: Tensor,
    target_ptr: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
    stats: Tensor,
    nodes: Tensor | None,
    kept: Tensor,
    training: bool,
    residual: bool,
    dropout: float,
) -> list[Tensor]:
    """∂t, ∂s, ∂b, or these and ∂a in one tensor; with edge features ∂e, ∂W and ∂bias; with a norm ∂β and ∂γ [2, C]."""
    from gssc.ops.gated_gcn import kernels

    edges, c = by_target.shape[0], _width(target, source)
    grid = Grid(target.shape[0], edges, c, target.device)
    found = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in (target, source, neighbor)
             if part is not None]  # fmt: skip
    t, s, b, _ = _parts(target, source, neighbor)
    d_t, d_s, d_b, d_a = _parts(found[0], *(found[1:] or (None, None)))
    parts = {"PARTS": 1 if d_a is None else 4}
    edge_attr = None if edge_attr is None else edge_attr.contiguous()
    grad, known = None if grad_edges is None else grad_edges.contiguous(), _bytes(mask)
    room, projected = None, None
    if edge_attr is not None and weight is not None and bias is not None:
        # ∂e is written one piece before ∂ℓ: where a product has been read, so that the two share their memory.
        room = target.new_empty(edges + _piece(edges), c)
        projected = _projected(edge_attr, weight, bias, room[_piece(edges) :])
    normed = grad is not None and scale is not None and grid.nodes > 0
    sums = stats.new_empty(2, c) if normed else stats.new_zeros(2, c)
    if grid.nodes:
        u, w = torch.empty_like(kept[0]), torch.empty_like(kept[0])
        h = nodes if kept.shape[0] == 1 else kept[1]
        grid.over_rows(kernels.backward_start, grid.nodes, grad_nodes.contiguous(), kept[0], h, u, w, d_a, **parts)
        hats, degrees = (torch.empty_like(u), u.new_empty(grid.nodes)) if normed else (None, None)
        partial = stats.new_empty(grid.programs, 2, c) if normed else None
        features, inner = (t, s, b, projected), (u, w, grad, known, stats, scale, shift, seed)
        flags = {
            "HAS_EDGES": projected is not None,
            "HAS_GRAD": grad is not None,
            "NORM": scale is not None,
            "HAS_MASK": grad is not None and known is not None,
            "DROPOUT": grad is not None and seed is not None,
            **parts,
        }
        into, outof = (by_target, sources, target_ptr), (by_source, targets, source_ptr)
        ends = (d_s, d_b, hats, degrees, partial, dropout)
        grid.over_nodes(kernels.backward_sources, *features, *outof, *inner, *ends, **flags)
        if partial is not None:
            torch.sum(partial, 0, out=sums)
            if training:
                common = (d_s, hats, degrees, stats, scale, sums)
                grid.over_rows(kernels.finish_sources, grid.nodes, *common, **parts)
        flags["TRAINING"] = training
        grid.over_nodes(kernels.backward_targets, *features, *into, *inner, sums, d_t, dropout, **flags)
    if room is not None and projected is not None:
        assert edge_attr is not None
        assert weight is not None
        assert bias is not None
        d_weight = _summed_product(projected, edge_attr).to(weight.dtype)
        d_edge = _edge_gradient(room, projected, weight, grad if residual else None)
        found += [d_edge, d_weight, d_t.sum(0, dtype=torch.float32).to(bias.dtype)]
    return found if scale is None else [*found, sums]


def _summed_product(left: Tensor, right: Tensor) -> Tensor:
    """LeftᵀRight as a sum of products of equally many rows: a product of few rows and columns keeps no GPU busy."""
    if left.shape[0] < 2 * SPLIT:
        return left.t() @ right
    rows = max(SPLIT, -(-left.shape[0] // 512))
    whole = left.shape[0] // rows * rows
    parts = [part[:whole].unflatten(0, (-1, rows)) for part in (left, right)]
    total = torch.bmm(parts[0].transpose(1, 2), parts[1]).sum(0, dtype=torch.float32)
    return total + left[whole:].t() @ right[whole:]


def _edge_gradient(room: Tensor, change: Tensor, weight: Tensor, grad: Tensor | None) -> Tensor:
    """∂e = ∂ℓ W + ∂e', in the memory of ∂ℓ: a second tensor of size E would not fit where the first just does."""
    edges = change.shape[0]
    rows = room.shape[0] - edges
    for first in range(0, edges, rows):
        last = min(first + rows, edges)
        if grad is None:
            torch.mm(change[first:last], weight, out=room[first:last])
        else:
            torch.addmm(grad[first:last], change[first:last], weight, out=room[first:last])
    return room[:edges]


@gated_gcn_fused_backward.register_fake
def _(grad_nodes: Tensor, grad_edges: Tensor | None, *others: Any) -> list[Tensor]:
    target, source, neighbor, edge_attr, weight, bias, scale = others[:7]
    like = [part for part in (target, source, neighbor, edge_attr, weight, bias) if part is not None]
    found = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]
    return found if scale is None else [*found, scale.new_empty((2, scale.shape[0]), dtype=torch.float32)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, ctx.numbers = inputs[:26], inputs[26:-1]
    # Running statistics are changed in place after the op; what it used of them is among its outputs.
    dropped = (8, 9) if tensors[19] is None else (0, 1, 2, 8, 9)
    saved = [None if place in dropped else tensor for place, tensor in enumerate(tensors)]
    ctx.dtype = tensors[0].dtype
    ctx.save_for_backward(*saved, output[2], output[0] if output[3].shape[0] == 1 else None, output[3])
    ctx.mark_non_differentiable(output[2], output[3])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_nodes: Tensor | None, grad_edges: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    tensors, stats, nodes, kept = _saved(ctx)
    target, source, neighbor, edge_attr, weight, bias, scale, shift, _, _, _, mask, seed, *plan = tensors
    _, training, residual, _, dropout = ctx.numbers
    given: list[Tensor | None] = [None] * 32
    if grad_nodes is None and grad_edges is None:
        return tuple(given)
    places = [place for place in range(8) if tensors[place] is not None]
    if torch.is_grad_enabled():  # somebody will differentiate the result
        found = _eager_gradients(ctx, tensors, stats, grad_nodes, grad_edges, places)
    else:
        grad_nodes = torch.zeros_like(kept[0], dtype=ctx.dtype) if grad_nodes is None else grad_nodes
        found = gated_gcn_fused_backward(
            grad_nodes, grad_edges, target, source, neighbor, edge_attr, weight, bias, scale, shift, mask, seed, *plan,
            stats, nodes, kept, training, residual, dropout,
        )  # fmt: skip
        if scale is not None:
            *found, sums = found
            found += [sums[1].to(scale.dtype), sums[0].to(shift.dtype)]
    for place, gradient in zip(places, found, strict=True):
        given[place] = gradient if ctx.needs_input_grad[place] else None
    return tuple(given)


def _saved(ctx: Any) -> tuple[list[Any], Tensor, Tensor | None, Tensor]:
    """Inputs up to the plan, t, s and n computed anew where they were not kept, and three of the outputs."""
    *tensors, stats, nodes, kept = ctx.saved_tensors
    x, *linears = tensors[19:]
    if x is not None:
        for place in range(3):
            weight, bias = linears[2 * place : 2 * place + 2]
            tensors[place] = F.linear(x.to(ctx.dtype), weight.to(ctx.dtype), bias.to(ctx.dtype))
    return tensors[:19], stats, nodes, kept


def _eager_gradients(
    ctx: Any,
    tensors: list[Any],
    stats: Tensor,
    grad_nodes: Tensor | None,
    grad_edges: Tensor | None,
    places: list[int],
) -> list[Tensor | None]:
    norm_eps, training, residual, eps, dropout = ctx.numbers
    if dropout:
        fail("dropout", "0.0 for second derivatives with backend='fused'", dropout)
    tensors = apart(tensors)
    target, source, neighbor, edge_attr, weight, bias, scale, shift, _, _, edge_index, mask, *_ = tensors
    norm = None
    if scale is not None:
        norm = EdgeNorm(scale, shift, stats[0], stats[1] ** -2 - norm_eps, norm_eps, training)
    t, s, b, a = _parts(target, source, neighbor)
    out = eager.gated_gcn(t, s, b, edge_index, edge_attr, weight, bias, norm, mask, residual, eps)
    out = out if a is None else out._replace(nodes=a + out.nodes)
    pairs = [pair for pair in ((out.nodes, grad_nodes), (out.edges, grad_edges)) if pair[1] is not None]
    outputs, grads = zip(*pairs, strict=True)
    leaves = [tensors[place] for place in places]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


gated_gcn_fused.register_autograd(_backward, setup_context=_setup)


def gated_gcn(
    target: Tensor,
    source: Tensor | None,
    neighbor: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: EdgeNorm | None,
    mask: Tensor | None,
    residual: bool,
    eps: float,
    dropout: float,
    plan: EdgePlan,
    need_edges: bool = True,
    origin: Origin | None = None,
) -> GatedOutput:
    """See ``gssc.ops.gated_gcn``."""
    dtype, seed = target.dtype, None
    if dropout:
        seed = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=target.device)
    if source is not None and neighbor is not None:
        source, neighbor = source.to(dtype), neighbor.to(dtype)
    if edge_attr is not None and weight is not None and bias is not None:
        edge_attr, weight, bias = edge_attr.to(dtype), weight.to(dtype), bias.to(dtype)
    values = (None, None, None, None, 0.0, False) if norm is None else norm
    nodes, edges, stats, _ = gated_gcn_fused(
        target, source, neighbor, edge_attr, weight, bias, *values[:4], edge_index,
        mask if norm is not None else None, seed, *plan, *(origin or [None] * 7), values[4], values[5],
        residual, eps, dropout, need_edges,
    )  # fmt: skip
    return GatedOutput(nodes, edges, stats[4, 0], stats[2], stats[3], stats)
