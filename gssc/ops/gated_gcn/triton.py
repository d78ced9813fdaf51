"""GatedGCN up to its norm of nodes in Triton: forward makes one tensor of size E, its output, and keeps no other.

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

a + h is returned. t, s, b and a are tensors of their own, or columns of one, as one product makes them: then so are
their gradients. Where memory is scarce, t, s and b are not kept but computed anew from x.

Sums over the edges of a node are made by one program, in order: no atomics. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_shapes
from gssc.ops.context import EdgePlan
from gssc.ops.edges.launch import Grid
from gssc.ops.gated_gcn.naive import Inputs
from gssc.ops.gated_gcn.torch import composed
from gssc.ops.launch import launch
from gssc.ops.linears import MERGED, mergeable, op_of_linears
from gssc.ops.norm import NormState
from gssc.ops.norm import naive as random
from gssc.ops.norm.triton import move_running_statistics, normalized_by
from gssc.ops.op import composed_gradients, is_traced, op, unmodified, weight_and_bias
from gssc.ops.triton_support import exporting

PIECE = 1 << 14  # edges of which the gradient is multiplied at a time, at least
SPLIT = 1 << 12  # edges over which a product that sums over edges is one sum, at least
LARGEST = 1 << 30  # numbers of one product
MERGED_MOMENTS = 256  # partial moments that one step merges


@op("gssc::gated_messages")
def _messages(
    target: Tensor, source: Tensor, neighbor: Tensor, own: Tensor,
    edge_attr: Tensor | None, weight: Tensor | None, bias: Tensor | None, scale: Tensor | None, shift: Tensor | None,
    fixed: Sequence[Tensor | None], origin: Sequence[Tensor], norm_eps: float, training: bool, residual: bool,
    eps: float, dropout: float, site: int, parts: int, need_edges: bool,
    batches: Tensor | None = None, momentum: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """H [N, C] and e' [E, C] or [0, C], then statistics [5, C], d and maybe h, which only the backward pass needs.

    ``fixed`` are those without gradients: the plan, the edges, mask, seed, running mean and variance. ``origin`` is
    what t, s and n are computed anew from. Statistics, where there is a norm, are the mean and 1/√(variance + ε) in
    use, then mean, Σ(ℓ - mean)² and n of the batch. The last are d and h - a, not rounded, [2, N, C]. Where ``batches``
    are given, running statistics move on; not where a program is traced.
    """
    from gssc.ops.gated_gcn import kernels
    from gssc.ops.norm.kernels import forward_merge as merge_moments

    tensors: Any = fixed
    by_target, sources, target_ptr, _, _, _, edge_index, mask, seed, running_mean, running_variance = tensors
    (nodes, c), edges = target.shape, edge_index.shape[1]
    grid, projected = Grid(nodes, edges, c, target.device), None
    out, new_edges, stats, kept = _empty_results(target, scale, edges if need_edges or weight is not None else 0)
    if edge_attr is not None and weight is not None and bias is not None:
        projected = _project(edge_attr, weight, bias, new_edges)
    moments = stats.new_empty(grid.programs if training else 0, 3, c)
    grid.over_nodes(
        kernels.forward_nodes, target, source, neighbor, own, projected, by_target, sources, target_ptr, mask, out,
        kept, moments if training else None, eps, PARTS=parts,
    )  # fmt: skip
    if scale is not None:
        launch(
            merge_moments, (1, -(-c // 32)), moments, running_mean, running_variance, batches, None, None, None, stats,
            len(moments), EPS=norm_eps, MOMENTUM=momentum, C=c, ROWS=MERGED_MOMENTS, BLOCK_C=32, num_warps=8,
        )  # fmt: skip
    if need_edges:
        grid.over_rows(
            kernels.forward_edges, edges, target, source, projected, edge_attr if residual else None,
            edge_index, mask, stats, scale, shift, seed, new_edges,
            random.threshold(dropout), random.scale(dropout), PARTS=parts, SITE=site,
        )  # fmt: skip
    return out, new_edges if need_edges else new_edges.new_empty(0, c), stats, kept


def _project(edge_attr: Tensor, weight: Tensor, bias: Tensor, into: Tensor) -> Tensor:
    """eWᵀ + b, of so many edges at a time that no product has 2³¹ numbers: where libraries count in 32 bits."""
    rows = max(LARGEST // edge_attr.shape[1], 1)
    if edge_attr.shape[0] <= rows:
        return torch.addmm(bias, edge_attr, weight.t(), out=into)
    for attr, place in zip(edge_attr.split(rows), into.split(rows), strict=True):
        torch.addmm(bias, attr, weight.t(), out=place)
    return into


def _empty_results(target: Tensor, scale: Tensor | None, edges: int) -> tuple[Tensor, ...]:
    """Nodes, edges, statistics, and d with h - a."""
    nodes, c = target.shape
    stats = target.new_empty((0 if scale is None else 5, c), dtype=torch.float32)
    return target.new_empty(nodes, c), target.new_empty(edges, c), stats, stats.new_empty(2, nodes, c)


@_messages.register_fake
def _(target: Tensor, source: Tensor, neighbor: Tensor, own: Tensor, *others: Any) -> tuple[Tensor, ...]:
    scale, fixed, need_edges = others[3], others[5], others[14]
    return _empty_results(target, scale, fixed[6].shape[1] if need_edges else 0)


@op("gssc::gated_messages_backward")
def _messages_backward(
    grad_nodes: Tensor, grad_edges: Tensor | None, saved: Sequence[Tensor | None],
    training: bool, residual: bool, dropout: float, site: int, parts: int,
) -> list[Tensor]:  # fmt: skip
    """∂t, ∂s and ∂b, or one tensor with them and ∂a as columns; with e ∂e, ∂W, ∂bias; with a norm ∂β, ∂γ in one."""
    from gssc.ops.gated_gcn import kernels

    tensors: Any = saved
    target, source, neighbor, edge_attr, weight, bias, scale, shift, *plan, _, mask, seed, stats, kept = tensors
    (nodes, c), edges = target.shape, plan[0].shape[0]
    grid = Grid(nodes, edges, c, target.device)
    gradients = _empty_gradients(target, parts)
    d_t, d_s, d_b, *spare = gradients if parts == 1 else gradients[0].chunk(parts, dim=1)
    grad = None if grad_edges is None else grad_edges.contiguous()
    projected = None
    if edge_attr is not None and edges <= PIECE:
        projected = torch.addmm(bias, edge_attr, weight.t())
    elif edge_attr is not None:
        # ∂e is written one piece before ∂ℓ: where a product has been read, so that the two share their memory.
        piece = max(PIECE, -(-edges // 64 // 64) * 64)  # aligned, and a small part of a large number
        room = target.new_empty(edges + piece, c)
        projected = _project(edge_attr, weight, bias, room[piece:])
    u, w = stats.new_empty(nodes, c), stats.new_empty(nodes, c)
    start = (grad_nodes.contiguous(), kept, u, w, spare[0] if spare else None)
    grid.over_rows(kernels.backward_start, nodes, *start, PARTS=parts)
    hats = degrees = partial = sums = None
    if grad is not None and scale is not None:
        hats, degrees, partial = stats.new_empty(nodes, c), stats.new_empty(nodes), stats.new_empty(grid.programs, 2, c)
    features = (target, source, neighbor, projected)
    inner: tuple[Any, ...] = (u, w, grad, mask, stats, scale, shift, seed)
    numbers, flags = (random.threshold(dropout), random.scale(dropout)), {"PARTS": parts, "SITE": site}
    sums_of_edges = (d_s, d_b, hats, degrees, partial)
    grid.over_nodes(kernels.backward_sources, *features, *plan[3:], *inner, *sums_of_edges, *numbers, **flags)
    if partial is not None:
        sums = partial.sum(0)
        if training:
            grid.over_rows(kernels.finish_sources, nodes, d_s, hats, degrees, stats, scale, sums, PARTS=parts)
    inner = (*inner, sums if training else None, d_t)
    grid.over_nodes(kernels.backward_targets, *features, *plan[:3], *inner, *numbers, **flags)
    if projected is not None:
        d_weight = _summed_product(projected, edge_attr).to(weight.dtype)
        added = grad if residual else None
        if edges <= PIECE:
            d_edge = projected @ weight if added is None else torch.addmm(added, projected, weight)
        else:
            d_edge = _edge_gradient(room, projected, weight, added)
        gradients += [d_edge, d_weight, d_t.sum(0, dtype=torch.float32).to(bias.dtype)]
    if scale is not None:
        gradients.append(stats.new_zeros(2, c) if sums is None else sums)
    return gradients


def _empty_gradients(target: Tensor, parts: int) -> list[Tensor]:
    """What holds the gradients of t, s and b: one tensor where these were columns of one."""
    nodes, c = target.shape
    return [target.new_empty(nodes, parts * c) for _ in range(3 if parts == 1 else 1)]


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
def _(grad_nodes: Tensor, grad_edges: Tensor | None, saved: Sequence[Any], *numbers: Any) -> list[Tensor]:
    target, _, _, edge_attr, weight, bias, scale = saved[:7]
    gradients = _empty_gradients(target, numbers[-1])
    if edge_attr is not None:
        gradients += [tensor.new_empty(tensor.shape) for tensor in (edge_attr, weight, bias)]
    return gradients if scale is None else [*gradients, scale.new_empty((2, scale.shape[0]), dtype=torch.float32)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *told, _, edge_attr, weight, bias, scale, shift, fixed, origin = inputs[:11]
    ctx.numbers, ctx.dtype = inputs[11:18], told[0].dtype
    _, _, stats, kept = output
    ctx.save_for_backward(
        *([None] * 3 if origin else told), edge_attr, weight, bias, scale, shift,
        # Not the running statistics, which are changed in place after the op; what it used of them is in its results.
        *fixed[:9], stats, kept, *origin,
    )  # fmt: skip
    ctx.mark_non_differentiable(stats, kept)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_nodes: Tensor | None, grad_edges: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    # Nothing in a list has a gradient, which ``torch.library`` wants to hear of each of its tensors.
    absent = [[None] * len(need) if isinstance(need, list) else None for need in ctx.needs_input_grad[9:]]
    if grad_nodes is None and grad_edges is None:
        return (*[None] * 9, *absent)
    saved = list(ctx.saved_tensors)
    origin = saved[19:]
    del saved[19:]
    if origin:  # t, s and n were not kept
        x, *weights = (tensor.to(ctx.dtype) for tensor in origin)
        saved[:3] = [F.linear(x, weights[place], weights[place + 1]) for place in (0, 2, 4)]
    if torch.is_grad_enabled():  # somebody will differentiate the result
        gradients = _composed_gradients(ctx, saved, grad_nodes, grad_edges)
        return (*gradients[:3], grad_nodes if ctx.needs_input_grad[3] else None, *gradients[3:], *absent)
    _, training, residual, _, dropout, site, parts = ctx.numbers
    if grad_nodes is None:
        grad_nodes = saved[0].new_zeros(saved[0].shape)
    results = _messages_backward(grad_nodes, grad_edges, saved, training, residual, dropout, site, parts)
    d_told, others = (results[:3], results[3:]) if parts == 1 else (results[0].chunk(parts, dim=1), results[1:])
    d_own = None
    if ctx.needs_input_grad[3]:
        d_own = grad_nodes if parts == 1 else d_told[3]
    d_edges = others[:3] if saved[3] is not None else [None] * 3
    d_norm = [None, None]
    if saved[6] is not None:
        d_shift, d_scale = others[-1].unbind()
        d_norm = [d_scale.to(saved[6].dtype), d_shift.to(saved[7].dtype)]
    return (*d_told[:3], d_own, *d_edges, *d_norm, *absent)


def _composed_gradients(ctx: Any, saved: list[Any], *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients of t, s, b, e, W, bias, γ and β by PyTorch's ops; a only adds its own."""
    norm_eps, _, residual, eps, dropout, site, _ = ctx.numbers
    edge_index, mask, seed, stats = saved[14:18]

    def function(t: Tensor, s: Tensor, b: Tensor, e: Any, weight: Any, bias: Any, scale: Any, shift: Any) -> Any:
        def update(logits: Tensor) -> Tensor:
            if scale is not None:
                logits = normalized_by(stats, logits, scale, shift, mask, norm_eps)
            return random.dropped(logits.relu(), seed, site, dropout)

        def project(rows: Tensor) -> Tensor:
            return F.linear(rows, weight, bias)

        results = composed(t, s, b, Inputs(t, (), edge_index, e, project, residual=residual, eps=eps), update)
        return [result.to(grad.dtype) for result, grad in zip(results, grads, strict=True) if grad is not None]

    needed = [need for place, need in enumerate(ctx.needs_input_grad[:9]) if place != 3]
    return composed_gradients(function, saved[:8], needed, [grad for grad in grads if grad is not None])


_messages.register_autograd(_backward, setup_context=_setup)


def gated_messages(
    inputs: Inputs, norm: NormState | None, plan: EdgePlan, need_edges: bool
) -> tuple[Tensor, Tensor | None]:
    """See ``gssc.ops.gated_gcn``; weights and the state of the norm are used without calling the modules.

    Few nodes tell t, s, n and a as columns of one product; many by the modules, and tell them anew in backward.
    """
    x, tell, edge_index, edge_attr, lin_edge, _, mask, residual, eps, dropout, seed, site = inputs
    merged, modules = mergeable(x, *tell), list(tell)
    if merged:
        autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if autocast else x.dtype
        c: int = modules[0].out_features  # type: ignore[assignment]
    else:
        told = [module(x) for module in modules]
        dtype, c = told[0].dtype, told[0].shape[1]
        told = [rows.to(dtype).contiguous() for rows in told]
    state: Any = (*[None] * 5, 0.0, 0.0, False) if norm is None else norm
    scale, shift, mean, variance, batches, norm_eps, momentum, training = state
    linear: Any = lin_edge
    weight, bias = weight_and_bias(linear) if linear is not None else (None, None)
    check_shapes(("lin_edge.weight", weight, (c, c)), ("norm.weight", scale, (c,)))
    edges: tuple[Any, ...] = (None, None, None)
    if edge_attr is not None and weight is not None and bias is not None:
        edges = edge_attr.to(dtype).contiguous(), weight.to(dtype), bias.to(dtype)
    narrow_mask = None if mask is None else mask.contiguous().view(torch.uint8)
    fixed = [*plan, edge_index.contiguous(), narrow_mask, seed if dropout else None, mean, variance]
    moves = training and momentum is not None and not is_traced(x)  # with the op itself, as in ``norm``
    anew = [] if merged else _origin(x, modules[:3])
    others = (
        *edges, scale, shift, fixed, anew, norm_eps, training, residual, eps, dropout, site,
        len(tell) if merged else 1, need_edges, *((batches, momentum) if moves else (None, 0.0)),
    )  # fmt: skip
    if merged:
        weights, biases = zip(*map(weight_and_bias, modules), strict=True)
        nodes, new_edges, stats, _ = op_of_linears(_messages, x, weights, biases, *others)
    else:
        nodes, new_edges, stats, _ = _messages(*told, *others)
    if training and not moves:
        move_running_statistics(stats.unsqueeze(0), mean, variance, batches, None, None, None, momentum)
    return nodes, new_edges if need_edges else None


def _origin(x: Tensor, modules: Sequence[Any]) -> list[Any]:
    """What t, s and n are computed anew from, x and weight and bias of each Linear; nothing where they are kept."""
    # A limit on the nodes would become one of an exported program.
    if exporting() or x.numel() <= MERGED or not unmodified(*modules, bias=True):
        return []
    return [x, *(tensor for module in modules for tensor in weight_and_bias(module))]
