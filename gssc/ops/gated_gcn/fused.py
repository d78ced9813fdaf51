"""GatedGCN between its Linears in Triton: forward makes one tensor of size E, its output, and keeps none of its own.

ℓ_ij = t_i + s_j + Z_ij, with Z the projected edge features, is computed anew in every pass; so are gates.

    forward     Z = eWᵀ + b                                                        a matrix product, where there is e
                1  h_i = Σ_j σ(ℓ) ⊙ b_j / d_i,  d_i = Σ_j σ(ℓ) + ε, moments of ℓ   edges in the order of targets
                2  e' = e + drop(ReLU(γℓ̂ + β)), if anybody needs it                in the order they came, over Z
    backward    Z = eWᵀ + b,  u = ∂h / d,  w = u ⊙ h
                1  ∂b_j = Σ_i σ ⊙ u_i,  Σ_i (σ(1-σ) ⊙ (u_i ⊙ b_j - w_i) + γ/√(v+ε) g)
                   and Σ_i ℓ̂ per node; Σg, Σgℓ̂ over all; from these ∂s_j           sources; g = ∂(γℓ̂ + β)
                2  ∂t_i = Σ_j ∂ℓ,  ∂ℓ over Z                                       targets
                   ∂W = ∂ℓᵀe,  ∂e = ∂ℓW + ∂e' piece by piece, over ∂ℓ              matrix products

    ∂ℓ = σ(1-σ) ⊙ (u_i ⊙ b_j - w_i) + γ/√(v+ε) ⊙ (g - (Σg + ℓ̂ Σgℓ̂)/n)

Sums over the edges of a node are made by one program, in order: no atomics. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import fail
from gssc.ops.edges.launch import Grid
from gssc.ops.edges.plan import EdgePlan
from gssc.ops.gated_gcn import eager
from gssc.ops.gated_gcn.types import EdgeNorm, GatedOutput, Origin

PIECE = 1 << 14  # edges of which the gradient is multiplied at a time, at least
SPLIT = 1 << 12  # edges over which a product that sums over edges is one sum, at least
LARGEST = 1 << 30  # numbers of one product
MERGED = 256  # partial moments that one step merges


def _grid(target: Tensor, edge_index: Tensor) -> Grid:
    return Grid(target.shape[0], edge_index.shape[1], target.shape[1], target.device)


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


def _kept_shape(target: Tensor) -> tuple[int, int, int]:
    return (1 if target.dtype == torch.float32 else 2, *target.shape)


def _piece(edges: int) -> int:
    """Edges of a piece: aligned, and a small part of a large number."""
    return max(PIECE, -(-edges // 64 // 64) * 64)


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


@torch.library.custom_op("gssc::gated_gcn_fused", mutates_args=())
def gated_gcn_fused(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Nodes [N, C], edges [E, C] (or [0, C]), moments [], [C], [C], and what the backward pass needs.

    That is the mean and 1/√(variance + ε) in use [2, C], and d and, in half precision, h unrounded [1 or 2, N, C].
    """
    from gssc.ops.gated_gcn import kernels

    grid, c = _grid(target, edge_index), target.shape[1]
    target, source, neighbor = target.contiguous(), source.contiguous(), neighbor.contiguous()
    edge_attr = None if edge_attr is None else edge_attr.contiguous()
    projected, known = _projected(edge_attr, weight, bias), _bytes(mask)
    nodes = torch.empty_like(target)
    wide: dict[str, Any] = {"dtype": torch.float32, "device": target.device}
    count, mean, squares = torch.zeros((), **wide), torch.zeros(c, **wide), torch.zeros(c, **wide)
    used, kept = torch.zeros(2, c, **wide), torch.empty(_kept_shape(target), **wide)
    moments = training and scale is not None
    parts = [torch.empty(grid.programs, *shape, **wide) if moments else None for shape in ((), (c,), (c,))]
    if grid.nodes:
        tensors = (target, source, neighbor, projected, by_target, sources, target_ptr, known, nodes, kept, *parts, eps)
        flags = {"HAS_EDGES": projected is not None, "HAS_MASK": moments and known is not None, "MOMENTS": moments}
        flags["HALF"] = kept.shape[0] == 2
        grid.over_nodes(kernels.forward_nodes, *tensors, **flags)
    if moments:
        kernels.merge_moments[(-(-c // 32),)](
            *parts, running_mean, running_variance, count, mean, squares, used, norm_eps, grid.programs,
            C=c, ROWS=MERGED, BLOCK_C=32, num_warps=8,
        )  # fmt: skip
    elif running_mean is not None and running_variance is not None:
        used[0], used[1] = running_mean, torch.rsqrt(running_variance + norm_eps)
    if not need_edges:
        edges = target.new_empty(0, c)
    else:
        edges = target.new_empty(grid.edges, c) if projected is None else projected
    if edges.shape[0]:
        vectors = (used, scale, shift, seed)
        inputs = (target, source, projected, edge_attr, edge_index.contiguous(), known, *vectors, edges, dropout)
        grid.over_rows(
            kernels.forward_edges, grid.edges, *inputs, HAS_EDGES=projected is not None, NORM=scale is not None,
            RESIDUAL=residual and edge_attr is not None, HAS_MASK=known is not None, DROPOUT=seed is not None,
        )  # fmt: skip
    return nodes, edges, count, mean, squares, used, kept


@gated_gcn_fused.register_fake
def _(target: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    edge_index, need_edges, c = others[9], others[-1], target.shape[1]
    wide: dict[str, Any] = {"dtype": torch.float32, "device": target.device}
    small = [torch.empty(shape, **wide) for shape in ((), (c,), (c,), (2, c), _kept_shape(target))]
    nodes = torch.empty_like(target, memory_format=torch.contiguous_format)
    edges = target.new_empty(edge_index.shape[1] if need_edges else 0, c)
    return nodes, edges, small[0], small[1], small[2], small[3], small[4]


@torch.library.custom_op("gssc::gated_gcn_fused_backward", mutates_args=())
def gated_gcn_fused_backward(
    grad_nodes: Tensor,
    grad_edges: Tensor | None,
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
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
    count: Tensor,
    used: Tensor,
    nodes: Tensor,
    kept: Tensor,
    training: bool,
    residual: bool,
    dropout: float,
) -> list[Tensor]:
    """∂t, ∂s, ∂b; with edge features ∂e, ∂W and ∂bias; with a norm ∂γ and ∂β."""
    from gssc.ops.gated_gcn import kernels

    edges, c = by_target.shape[0], target.shape[1]
    grid = Grid(target.shape[0], edges, c, target.device)
    target, source, neighbor = target.contiguous(), source.contiguous(), neighbor.contiguous()
    edge_attr = None if edge_attr is None else edge_attr.contiguous()
    grad, known = None if grad_edges is None else grad_edges.contiguous(), _bytes(mask)
    room, projected = None, None
    if edge_attr is not None and weight is not None and bias is not None:
        # ∂e is written one piece before ∂ℓ: where a product has been read, so that the two share their memory.
        room = target.new_empty(edges + _piece(edges), c)
        projected = _projected(edge_attr, weight, bias, room[_piece(edges) :])
    d_target, d_source, d_neighbor = (torch.empty_like(target) for _ in range(3))
    sums = torch.zeros(2, c, dtype=torch.float32, device=target.device)
    if grid.nodes:
        u = grad_nodes.float() / kept[0]
        w = u * (nodes if kept.shape[0] == 1 else kept[1])
        normed = grad is not None and scale is not None
        hats = torch.empty_like(target, dtype=torch.float32) if normed else None
        partial = sums.new_empty(grid.programs, 2, c) if normed else None
        features, inner = (target, source, neighbor, projected), (u, w, grad, known, used, scale, shift, seed)
        flags = {
            "HAS_EDGES": projected is not None,
            "HAS_GRAD": grad is not None,
            "NORM": scale is not None,
            "HAS_MASK": grad is not None and known is not None,
            "DROPOUT": grad is not None and seed is not None,
        }
        into, outof = (by_target, sources, target_ptr), (by_source, targets, source_ptr)
        ends = (d_source, d_neighbor, hats, partial, dropout)
        grid.over_nodes(kernels.backward_sources, *features, *outof, *inner, *ends, **flags)
        if partial is not None:
            sums = partial.sum(0)
            if training:
                real = _real_degrees(mask, by_source, source_ptr)
                common = (d_source, hats, real, used, scale, sums, count)
                grid.over_rows(kernels.finish_sources, grid.nodes, *common)
        flags["TRAINING"] = training
        grid.over_nodes(kernels.backward_targets, *features, *into, *inner, sums, count, d_target, dropout, **flags)
    found = [d_target, d_source, d_neighbor]
    if room is not None and projected is not None:
        assert edge_attr is not None
        assert weight is not None
        assert bias is not None
        d_weight = _summed_product(projected, edge_attr).to(weight.dtype)
        d_edge = _edge_gradient(room, projected, weight, grad if residual else None)
        found += [d_edge, d_weight, d_target.sum(0, dtype=torch.float32).to(bias.dtype)]
    if scale is not None and shift is not None:
        found += [sums[1].to(scale.dtype, copy=True), sums[0].to(shift.dtype, copy=True)]
    return found


def _real_degrees(mask: Tensor | None, by_source: Tensor, source_ptr: Tensor) -> Tensor:
    """How many real edges leave every node, [N]."""
    if mask is None:
        return torch.diff(source_ptr)
    before = F.pad(mask[by_source.long()].cumsum(0, dtype=torch.int32), (1, 0))
    return torch.diff(before[source_ptr.long()])


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
def _(grad_nodes: Tensor, grad_edges: Tensor | None, target: Tensor, *others: Any) -> list[Tensor]:
    _, _, edge_attr, weight, bias, scale, shift = others[:7]
    like = [target, target, target]
    like += [] if edge_attr is None else [edge_attr, weight, bias]
    like += [] if scale is None else [scale, shift]
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, ctx.numbers = inputs[:26], inputs[26:-1]
    # Running statistics are changed in place after the op; what it used of them is among its outputs.
    dropped = (8, 9) if tensors[19] is None else (0, 1, 2, 8, 9)
    saved = [None if place in dropped else tensor for place, tensor in enumerate(tensors)]
    ctx.dtype = tensors[0].dtype
    ctx.save_for_backward(*saved, output[2], output[5], output[0], output[6])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_nodes: Tensor | None, grad_edges: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    tensors, count, used, nodes, kept = _saved(ctx)
    target, source, neighbor, edge_attr, weight, bias, scale, shift, _, _, _, mask, seed, *plan = tensors
    _, training, residual, _, dropout = ctx.numbers
    given: list[Tensor | None] = [None] * 32
    if grad_nodes is None and grad_edges is None:
        return tuple(given)
    places = [0, 1, 2] + ([3, 4, 5] if edge_attr is not None else []) + ([6, 7] if scale is not None else [])
    if torch.is_grad_enabled():  # somebody will differentiate the result
        found = _eager_gradients(ctx, tensors, used, grad_nodes, grad_edges, places)
    else:
        grad_nodes = torch.zeros_like(target) if grad_nodes is None else grad_nodes
        found = gated_gcn_fused_backward(
            grad_nodes, grad_edges, target, source, neighbor, edge_attr, weight, bias, scale, shift, mask, seed, *plan,
            count, used, nodes, kept, training, residual, dropout,
        )  # fmt: skip
    for place, gradient in zip(places, found, strict=True):
        given[place] = gradient if ctx.needs_input_grad[place] else None
    return tuple(given)


def _saved(ctx: Any) -> tuple[list[Any], Tensor, Tensor, Tensor, Tensor]:
    """Inputs up to the plan, t, s and n computed anew where they were not kept, and four of the outputs."""
    *tensors, count, used, nodes, kept = ctx.saved_tensors
    x, *linears = tensors[19:]
    if x is not None:
        for place in range(3):
            weight, bias = linears[2 * place : 2 * place + 2]
            tensors[place] = F.linear(x.to(ctx.dtype), weight.to(ctx.dtype), bias.to(ctx.dtype))
    return tensors[:19], count, used, nodes, kept


def _eager_gradients(
    ctx: Any,
    tensors: list[Any],
    used: Tensor,
    grad_nodes: Tensor | None,
    grad_edges: Tensor | None,
    places: list[int],
) -> list[Tensor | None]:
    norm_eps, training, residual, eps, dropout = ctx.numbers
    if dropout:
        fail("dropout", "0.0 for second derivatives with backend='fused'", dropout)
    target, source, neighbor, edge_attr, weight, bias, scale, shift, _, _, edge_index, mask, *_ = tensors
    norm = None
    if scale is not None:
        norm = EdgeNorm(scale, shift, used[0], used[1] ** -2 - norm_eps, norm_eps, training)
    out = eager.gated_gcn(
        target, source, neighbor, edge_index, edge_attr, weight, bias, norm, mask, residual, eps
    )  # fmt: skip
    pairs = [pair for pair in ((out.nodes, grad_nodes), (out.edges, grad_edges)) if pair[1] is not None]
    outputs, grads = zip(*pairs, strict=True)
    leaves = [tensors[place] for place in places]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


gated_gcn_fused.register_autograd(_backward, setup_context=_setup)


def gated_gcn(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
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
    if edge_attr is not None and weight is not None and bias is not None:
        edge_attr, weight, bias = edge_attr.to(dtype), weight.to(dtype), bias.to(dtype)
    values = (None, None, None, None, 0.0, False) if norm is None else norm
    out = gated_gcn_fused(
        target, source.to(dtype), neighbor.to(dtype), edge_attr, weight, bias, *values[:4], edge_index,
        mask if norm is not None else None, seed, *plan, *(origin or [None] * 7), values[4], values[5],
        residual, eps, dropout, need_edges,
    )  # fmt: skip
    return GatedOutput(out[0], out[1], *(moment.detach() for moment in out[2:5]))
