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

With a, a + h is returned. t, s, b and a are tensors of their own, or columns of one, as one product makes them: then so
are their gradients. Where memory is scarce, t, s and b are not kept but computed anew from x.

Sums over the edges of a node are made by one program, in order: no atomics. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_shapes
from gssc.ops.context import EdgePlan
from gssc.ops.edges.launch import Grid
from gssc.ops.gated_gcn.torch import composed
from gssc.ops.launch import launch
from gssc.ops.linears import MERGED
from gssc.ops.norm import naive as random
from gssc.ops.norm.triton import move_running_statistics
from gssc.ops.norm.types import NormState
from gssc.ops.op import composed_gradients, is_traced, op, unmodified
from gssc.ops.triton_support import exporting

PIECE = 1 << 14  # edges of which the gradient is multiplied at a time, at least
SPLIT = 1 << 12  # edges over which a product that sums over edges is one sum, at least
LARGEST = 1 << 30  # numbers of one product
MERGED_MOMENTS = 256  # partial moments that one step merges


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


def _empty_results(target: Tensor, own: Tensor | None, edges: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Nodes, edges, statistics, and d with, where the nodes are not h unrounded, h."""
    nodes, c = target.shape
    wide: dict[str, Any] = {"dtype": torch.float32, "device": target.device}
    alone = own is None and target.dtype == torch.float32
    kept = torch.empty(1 if alone else 2, nodes, c, **wide)
    return target.new_empty(nodes, c), target.new_empty(edges, c), torch.empty(5, c, **wide), kept


def _piece(edges: int) -> int:
    """Edges of a piece: aligned, and a small part of a large number."""
    return max(PIECE, -(-edges // 64 // 64) * 64)


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


@op("gssc::gated_messages")
def _messages(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
    own: Tensor | None,
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
    site: int,
    parts: int,
    need_edges: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """H [N, C] and e' [E, C] or [0, C], then statistics [5, C], d and maybe h, which only the backward pass needs.

    Statistics are the mean and 1/√(variance + ε) in use, then mean, Σ(ℓ - mean)² and n of the batch where they were
    needed. The last are d and, in half precision or with a, h unrounded [1 or 2, N, C].
    """
    from gssc.ops.gated_gcn import kernels

    c = target.shape[1]
    grid = Grid(target.shape[0], edge_index.shape[1], c, target.device)
    edge_attr = None if edge_attr is None else edge_attr.contiguous()
    projected, real = _projected(edge_attr, weight, bias), _bytes(mask)
    over_projected = need_edges and projected is not None
    nodes, edges, stats, kept = _empty_results(target, own, grid.edges if need_edges and not over_projected else 0)
    moments = training and scale is not None
    sums = [stats.new_empty(grid.programs, *shape) if moments else None for shape in ((), (c,), (c,))]
    if grid.nodes:
        plan = (by_target, sources, target_ptr)
        grid.over_nodes(
            kernels.forward_nodes, target, source, neighbor, own, projected, *plan, real, nodes, kept, *sums, eps,
            PARTS=parts, HAS_EDGES=projected is not None, HAS_OWN=own is not None,
            HAS_MASK=moments and real is not None, MOMENTS=moments, KEEP=kept.shape[0] == 2,
        )  # fmt: skip
    if running_mean is None or running_variance is None:
        stats.zero_()
    else:
        merged, programs = (sums, grid.programs) if moments else ([stats] * 3, 0)
        launch(
            kernels.merge_moments, (-(-c // 32),), *merged, running_mean, running_variance, stats, norm_eps, programs,
            C=c, ROWS=MERGED_MOMENTS, BLOCK_C=32, num_warps=8,
        )  # fmt: skip
    if over_projected:
        assert projected is not None
        edges = projected
    if edges.shape[0]:
        grid.over_rows(
            kernels.forward_edges, grid.edges, target, source, projected, edge_attr, edge_index.contiguous(), real,
            stats, scale, shift, seed, edges, random.threshold(dropout), random.scale(dropout),
            PARTS=parts, HAS_EDGES=projected is not None, RESIDUAL=residual and edge_attr is not None,
            NORM=scale is not None, HAS_MASK=real is not None, DROPOUT=seed is not None, SITE=site,
        )  # fmt: skip
    return nodes, edges, stats, kept


@_messages.register_fake
def _(target: Tensor, source: Tensor, neighbor: Tensor, own: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    edge_index, need_edges = others[7], others[-1]
    return _empty_results(target, own, edge_index.shape[1] if need_edges else 0)


@op("gssc::gated_messages_backward")
def _messages_backward(
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
    stats: Tensor,
    nodes: Tensor | None,
    kept: Tensor,
    training: bool,
    residual: bool,
    dropout: float,
    site: int,
    parts: int,
    has_own: bool,
) -> list[Tensor]:
    """∂t, ∂s, ∂b and ∂a, or one tensor of which they are columns; with e ∂e, ∂W, ∂bias; with a norm ∂β, ∂γ in one."""
    from gssc.ops.gated_gcn import kernels

    edges, c = by_target.shape[0], target.shape[1]
    grid = Grid(target.shape[0], edges, c, target.device)
    gradients, (d_t, d_s, d_b, d_a) = _empty_node_gradients(target, parts, has_own)
    edge_attr = None if edge_attr is None else edge_attr.contiguous()
    grad, real = None if grad_edges is None else grad_edges.contiguous(), _bytes(mask)
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
        tensors = (grad_nodes.contiguous(), kept[0], h, u, w, d_a)
        grid.over_rows(kernels.backward_start, grid.nodes, *tensors, PARTS=parts, HAS_OWN=has_own)
        hats, degrees = (torch.empty_like(u), u.new_empty(grid.nodes)) if normed else (None, None)
        partial = stats.new_empty(grid.programs, 2, c) if normed else None
        features, inner = (target, source, neighbor, projected), (u, w, grad, real, stats, scale, shift, seed)
        numbers = (random.threshold(dropout), random.scale(dropout))
        flags = {
            "PARTS": parts,
            "HAS_EDGES": projected is not None,
            "HAS_GRAD": grad is not None,
            "NORM": scale is not None,
            "HAS_MASK": grad is not None and real is not None,
            "DROPOUT": grad is not None and seed is not None,
            "SITE": site,
        }
        into, outof = (by_target, sources, target_ptr), (by_source, targets, source_ptr)
        ends = (d_s, d_b, hats, degrees, partial, *numbers)
        grid.over_nodes(kernels.backward_sources, *features, *outof, *inner, *ends, **flags)
        if partial is not None:
            torch.sum(partial, 0, out=sums)
            if training:
                common = (d_s, hats, degrees, stats, scale, sums)
                grid.over_rows(kernels.finish_sources, grid.nodes, *common, PARTS=parts)
        flags["TRAINING"] = training
        grid.over_nodes(kernels.backward_targets, *features, *into, *inner, sums, d_t, *numbers, **flags)
    if room is not None and projected is not None:
        assert edge_attr is not None
        assert weight is not None
        assert bias is not None
        d_weight = _summed_product(projected, edge_attr).to(weight.dtype)
        d_edge = _edge_gradient(room, projected, weight, grad if residual else None)
        gradients += [d_edge, d_weight, d_t.sum(0, dtype=torch.float32).to(bias.dtype)]
    return gradients if scale is None else [*gradients, sums]


def _empty_node_gradients(target: Tensor, parts: int, has_own: bool) -> tuple[list[Tensor], list[Any]]:
    """What holds the gradients of t, s, b and a, one tensor where these were columns of one; and each of them."""
    if parts > 1:
        rows = target.new_empty(target.shape[0], parts * target.shape[1])
        gradients, columns = [rows], _columns(rows, parts, has_own)
    else:
        columns = [torch.empty_like(target, memory_format=torch.contiguous_format) for _ in range(3 + has_own)]
        gradients = list(columns)
    return gradients, columns if has_own else [*columns, None]


def _columns(rows: Tensor, parts: int, has_own: bool) -> list[Tensor]:
    return list(rows.chunk(parts, dim=1)[: 3 + has_own])


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


@_messages_backward.register_fake
def _(grad_nodes: Tensor, grad_edges: Tensor | None, target: Tensor, *others: Any) -> list[Tensor]:
    _, _, edge_attr, weight, bias, scale = others[:6]
    gradients, _ = _empty_node_gradients(target, *others[-2:])
    if edge_attr is not None:
        like = (edge_attr, weight, bias)
        gradients += [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]
    return gradients if scale is None else [*gradients, scale.new_empty((2, scale.shape[0]), dtype=torch.float32)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    target, source, neighbor, own, *features = inputs[:9]
    # Not the running statistics, which are changed in place after the op; what it used of them is in its results.
    others, origin, ctx.numbers = inputs[11:20], inputs[20:27], inputs[27:34]
    told = (target, source, neighbor) if origin[0] is None else (None, None, None)
    nodes, _, stats, kept = output
    ctx.dtype, ctx.has_own = target.dtype, own is not None
    results = (stats, nodes if kept.shape[0] == 1 else None, kept)
    ctx.save_for_backward(*told, *features, *others, *origin, *results)
    ctx.mark_non_differentiable(stats, kept)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_nodes: Tensor | None, grad_edges: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad_nodes is None and grad_edges is None:
        return (None,) * 35
    *tensors, stats, nodes, kept = ctx.saved_tensors
    inputs, others, (x, *linears) = tensors[:8], tensors[8:17], tensors[17:]
    if x is not None:  # t, s and n were not kept
        for place in range(3):
            weight, bias = linears[2 * place : 2 * place + 2]
            inputs[place] = F.linear(x.to(ctx.dtype), weight.to(ctx.dtype), bias.to(ctx.dtype))
    places = [0, 1, 2, *range(4, 9)]  # of what is kept, among the inputs of the op
    by_place: list[Tensor | None] = [None] * 35
    if torch.is_grad_enabled():  # somebody will differentiate the result
        needed = [ctx.needs_input_grad[place] for place in places]
        gradients = _composed_gradients(ctx.numbers, inputs, others, stats, needed, grad_nodes, grad_edges)
        by_place[3] = grad_nodes
    else:
        _, training, residual, _, dropout, site, parts = ctx.numbers
        grad_nodes = torch.zeros_like(kept[0], dtype=ctx.dtype) if grad_nodes is None else grad_nodes
        gradients = _messages_backward(
            grad_nodes, grad_edges, *inputs, *others[1:], stats, nodes, kept,
            training, residual, dropout, site, parts, ctx.has_own,
        )  # fmt: skip
        if parts > 1:
            gradients[:1] = _columns(gradients[0], parts, ctx.has_own)
        by_place[3] = gradients.pop(3) if ctx.has_own else None
        if inputs[6] is not None:  # a norm
            *gradients, sums = gradients
            gradients += [sums[1].to(inputs[6].dtype), sums[0].to(inputs[7].dtype)]
        places = [place for place, tensor in zip(places, inputs, strict=True) if tensor is not None]
    for place, gradient in zip(places, gradients, strict=True):
        by_place[place] = gradient
    return tuple(gradient if need else None for gradient, need in zip(by_place, ctx.needs_input_grad, strict=True))


def _composed_gradients(
    numbers: tuple[Any, ...],
    inputs: list[Any],
    others: list[Any],
    stats: Tensor,
    needed: list[bool],
    grad_nodes: Tensor | None,
    grad_edges: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Gradients of t, s, b, e, W, bias, γ and β by PyTorch's ops; a only adds its own."""
    norm_eps, _, residual, eps, dropout, site, _ = numbers
    edge_index, mask, seed = others[:3]

    def function(t: Tensor, s: Tensor, b: Tensor, e: Any, weight: Any, bias: Any, scale: Any, shift: Any) -> Any:
        def update(logits: Tensor) -> Tensor:
            if scale is not None:
                logits = _normalized(logits, scale, shift, mask, stats, norm_eps)
            return random.dropped(logits.relu(), seed, site, dropout)

        def project(rows: Tensor) -> Tensor:
            return F.linear(rows, weight, bias)

        results = composed(t, s, b, None, edge_index, e, project, update, residual, eps)
        pairs = zip(results, (grad_nodes, grad_edges), strict=True)
        return [result.to(grad.dtype) for result, grad in pairs if grad is not None]

    grads = [grad for grad in (grad_nodes, grad_edges) if grad is not None]
    return composed_gradients(function, inputs, needed, grads)


def _normalized(logits: Tensor, scale: Tensor, shift: Tensor, mask: Tensor | None, stats: Tensor, eps: float) -> Tensor:
    """γℓ̂ + β, differentiable through statistics of the batch; ``stats`` has those that count without one."""
    real = torch.ones_like(logits[:, :1], dtype=torch.bool) if mask is None else mask.unsqueeze(1)
    mean, inverse, _, _, n = stats
    center = torch.where(real, logits, 0.0).sum(0) / n.clamp(min=1)
    squares = torch.where(real, logits - center, 0.0).square().sum(0)
    by_batch = n >= 2
    inverse = torch.where(by_batch, torch.rsqrt(squares / n.clamp(min=1) + eps), inverse)
    return torch.where(real, (logits - torch.where(by_batch, center, mean)) * inverse * scale + shift, 0.0)


_messages.register_autograd(_backward, setup_context=_setup)


def gated_messages(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
    own: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    lin_edge: nn.Module | None,
    norm: NormState | None,
    mask: Tensor | None,
    plan: EdgePlan,
    origin: tuple[Tensor, Sequence[nn.Module]] | None,
    residual: bool,
    eps: float,
    dropout: float,
    seed: Tensor | None,
    site: int,
    need_edges: bool,
) -> tuple[Tensor, Tensor | None]:
    """See ``gssc.ops.gated_gcn``; weights and the state of the norm are used without calling the modules."""
    dtype, c = target.dtype, target.shape[1]
    weight: Any = None if lin_edge is None else lin_edge.weight
    bias: Any = None if lin_edge is None else lin_edge.bias
    state: tuple[Any, ...] = (*[None] * 5, 0.0, 0.0, False) if norm is None else norm
    scale, shift, mean, variance, batches, norm_eps, momentum, training = state
    check_shapes(("lin_edge.weight", weight, (c, c)), ("norm.weight", scale, (c,)))
    if edge_attr is not None:
        edge_attr, weight, bias = edge_attr.to(dtype), weight.to(dtype), bias.to(dtype)
    rows = [target, source.to(dtype), neighbor.to(dtype), *([] if own is None else [own.to(dtype)])]
    inputs_of_rows, parts = _origin(origin), _parts(rows)
    if inputs_of_rows[0] is not None or not parts:
        rows, parts = [row.contiguous() for row in rows], 1
    nodes, edges, stats, _ = _messages(
        *rows[:3], rows[3] if own is not None else None, edge_attr, weight, bias, scale, shift, mean, variance,
        edge_index, None if norm is None else mask, seed if dropout else None, *plan, *inputs_of_rows,
        norm_eps, training, residual, eps, dropout, site, parts, need_edges,
    )  # fmt: skip
    if training:
        move_running_statistics(stats.unsqueeze(0), mean, variance, batches, None, None, None, momentum)
    return nodes, edges if need_edges else None


def _parts(rows: Sequence[Tensor]) -> int:
    """How many rows of C numbers lie from one node to the next in memory, in all alike; 0 where kernels need copies."""
    if is_traced(*rows):
        return 0
    stride, c = rows[0].stride(), rows[0].shape[1]
    if stride[1] != 1 or stride[0] < c or stride[0] % c:
        return 0
    for row in rows:
        if row.stride() != stride:
            return 0
    return stride[0] // c


def _origin(origin: tuple[Tensor, Sequence[nn.Module]] | None) -> tuple[Any, ...]:
    """What t, s and n are computed anew from, x and weight and bias of each Linear; None where they are kept."""
    # A limit on the nodes would become one of an exported program.
    if origin is None or exporting() or origin[0].numel() <= MERGED:
        return (None,) * 7
    weights: list[Any] = []
    for module in origin[1]:
        if not unmodified(module) or module.bias is None:
            return (None,) * 7
        weights += [module.weight, module.bias]
    return origin[0], *weights
