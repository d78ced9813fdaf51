"""GatedGCN up to its norm of nodes in Triton.

ℓ_ij = t_i + s_j + (eWᵀ + bias)_ij, gates σ = sigmoid(ℓ), ∂ for gradients.

    forward     1  ℓ, and its moments                                              edges in the order they came
                2  h_i = Σ_j σ ⊙ b_j / d_i,  d_i = Σ_j σ + ε                       edges in the order of targets
                3  e' = e + drop(ReLU(γℓ̂ + β)), if anybody needs it                in the order they came
    backward       u = ∂h / d;  ℓ anew, where it was not kept
                1  ∂b_j = Σ_i σ ⊙ u_i,  Σ_i (σ(1-σ) ⊙ u_i ⊙ (b_j - h_i) + γ/√(v+ε) g)
                   Σ_i ℓ̂, Σ_i 1 per node; Σg, Σgℓ̂ over all                           sources; g = ∂(γℓ̂ + β)
                2  ∂t_i = Σ_j ∂ℓ,  ∂ℓ;  from the sums of 1 also ∂s_i                targets
                   ∂W = ∂ℓᵀe,  ∂e = ∂ℓW + ∂e'                                       matrix products

    ∂ℓ = σ(1-σ) ⊙ u_i ⊙ (b_j - h_i) + γ/√(v+ε) ⊙ (g - (Σg + ℓ̂ Σgℓ̂)/n)

a + h is returned. What nodes tell, t, s, b and a, are the columns of one tensor; so are their gradients.

Of size E are, with few edges, ℓ, which is kept, and e'. With many memory is what counts: ℓ is made where e' will be,
and anew for the backward pass, ∂ℓ takes its place, and ∂e that of ∂ℓ, piece by piece; what nodes tell is made anew.

Sums over the edges of a node are made by one program, in order: no atomics. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_shapes
from gssc.ops.context import EdgePlan
from gssc.ops.edges.launch import Grid
from gssc.ops.gated_gcn.naive import Inputs
from gssc.ops.gated_gcn.torch import composed
from gssc.ops.launch import kernels_of, launch
from gssc.ops.linears import mergeable, op_of_linears
from gssc.ops.linears import triton as products
from gssc.ops.norm import NormState
from gssc.ops.norm.naive import move_running_statistics
from gssc.ops.norm.triton import composed_norm, merge_moments, norm_backward, norm_forward, normalized_by
from gssc.ops.op import composed_gradients, is_traced, op, weight_and_bias
from gssc.ops.random import dropped, rescale, threshold
from gssc.ops.triton_support import multiprocessors, wants_exact

KEPT = 1 << 25  # numbers of ℓ, E × C, up to which it is kept
PIECE = 1 << 18  # edges of which the gradient is multiplied at a time, at least
SHARES = 6  # of the edges, per processor, of which ℓ is made


@op("gssc::gated_messages")
def _messages(
    told: Tensor, edge_attr: Tensor | None, weight: Tensor | None, bias: Tensor | None, scale: Tensor | None,
    shift: Tensor | None, fixed: Sequence[Tensor | None], norm_eps: float, training: bool, residual: bool, eps: float,
    dropout: float, site: int, need_edges: bool, batches: Tensor | None = None, momentum: float = 0.0,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """H [N, C] and e' [E, C] or [0, C], then statistics [5, C], 1/d and h, and ℓ, which only the backward pass needs.

    ``told`` [N, 4C] has t, s, b and a as columns. ``fixed`` are those without gradients: the plan, the edges, mask,
    seed, running mean and variance. Statistics, where there is a norm, are the mean and 1/√(variance + ε) in use, then
    mean, Σ(ℓ - mean)² and n of the batch. The last are 1/d and h - a, not rounded, [2, N, C]. Where ``batches`` are
    given, running statistics move on; not where a program is traced. ℓ is [E, C] where asked to ``keep`` it, or [0, C].
    """
    kernels = kernels_of("gated_gcn")
    tensors: Any = fixed
    by_target, sources, target_ptr, _, _, _, edge_index, mask, seed, running_mean, running_variance = tensors
    (nodes, width), edges = told.shape, edge_index.shape[1]
    c = width // 4
    grid = Grid(nodes, edges, c, told.device)
    out, new_edges, stats, kept, logits = _empty_results(told, scale, edges, need_edges, keep)
    if not keep:
        logits = new_edges if need_edges else told.new_empty(edges, c)
    moments = _make_logits(told, edge_attr, weight, bias, edge_index, mask, logits, training)
    if moments is not None:
        merge_moments(moments, (running_mean, running_variance, batches, None, None, None), stats, norm_eps, momentum)
    at_rest = (None,) * 3 if scale is None or training else (running_mean, running_variance, stats)
    if nodes == 0 and at_rest[2] is not None:
        stats.zero_()
    grid.over_nodes(
        kernels.forward_nodes, told, logits, by_target, sources, target_ptr, out, kept, *at_rest,
        numbers=(eps, norm_eps), PARTS=4,
    )  # fmt: skip
    if need_edges:
        grid.over_rows(
            kernels.forward_edges, edges, logits, edge_attr if residual else None, mask, stats, scale, shift, seed,
            new_edges, numbers=(threshold(dropout), rescale(dropout)), SITE=site,
        )  # fmt: skip
    return out, new_edges, stats, kept, logits if keep else logits.new_empty(0, c)


def _make_logits(
    told: Tensor, e: Tensor | None, weight: Any, bias: Any, edge_index: Tensor, mask: Any, out: Tensor, moments: bool
) -> Tensor | None:
    """ℓ, into ``out`` [E, C], and where asked for its moments by shares of the edges, [shares, 3, C]."""
    edges, c = out.shape
    plan = products.cut(c, c, 1, wants_exact(told), edges > products.MANY)
    most = max(SHARES * multiprocessors(told.device) // plan.blocks, 1)
    share = max(-(-edges // (most * plan.block_n)), 1) * plan.block_n
    shares = max(-(-edges // share), 1)
    partial = told.new_empty(shares, 3, c, dtype=torch.float32) if moments else None
    launch(
        kernels_of("gated_gcn").edge_logits, (shares, plan.blocks), told, e, weight, bias, edge_index, mask, out,
        partial, numbers=(edges, share), C=c, BLOCK_E=plan.block_n, BLOCK_C=plan.constants["BLOCK"],
        STEP=plan.constants["STEP"], PARTS=told.shape[1] // c, PRECISION=plan.constants["PRECISION"], **plan.effort,
    )  # fmt: skip
    return partial


def _empty_results(told: Tensor, scale: Tensor | None, edges: int, need_edges: bool, keep: bool) -> tuple[Tensor, ...]:
    """Nodes, edges, statistics, 1/d with h - a, and ℓ."""
    nodes, c = told.shape[0], told.shape[1] // 4
    stats = told.new_empty((0 if scale is None else 5, c), dtype=torch.float32)
    of_edges = (told.new_empty(edges if there else 0, c) for there in (need_edges, keep))
    return told.new_empty(nodes, c), next(of_edges), stats, stats.new_empty(2, nodes, c), next(of_edges)


@_messages.register_fake
def _(told: Tensor, *others: Any) -> tuple[Tensor, ...]:
    scale, fixed, need_edges, keep = others[3], others[5], others[12], others[15] if len(others) > 15 else False
    return _empty_results(told, scale, fixed[6].shape[1], need_edges, keep)


@op("gssc::gated_messages_backward")
def _messages_backward(
    grad_nodes: Tensor, grad_edges: Tensor | None, saved: Sequence[Tensor | None],
    training: bool, residual: bool, dropout: float, site: int,
) -> list[Tensor]:  # fmt: skip
    """∂t, ∂s, ∂b and ∂a as columns of one tensor; with e ∂e, ∂W, ∂bias; with a norm ∂β, ∂γ in one."""
    kernels = kernels_of("gated_gcn")
    tensors: Any = saved
    told, edge_attr, weight, bias, scale, shift, *plan, edge_index, mask, seed, stats, kept, logits = tensors
    (nodes, c), edges = kept.shape[1:], plan[0].shape[0]
    grid = Grid(nodes, edges, c, told.device)
    d_told = told.new_empty(nodes, 4 * c)
    grad = None if grad_edges is None else grad_edges.contiguous()
    known = logits.shape[0] == edges
    if known:
        change = None if edge_attr is None else torch.empty_like(logits)
    else:
        # ∂e is written one piece before ∂ℓ: where a product has been read, so that the two share their memory.
        # Aligned, and a small part of a large number.
        piece = -(-max(min(edges, PIECE), edges // 64) // 64) * 64
        room = told.new_empty(edges + piece, c)
        logits = change = room[piece:]
        _make_logits(told, edge_attr, weight, bias, edge_index, mask, logits, False)
    hats = partial = sums = None
    if grad is not None and scale is not None:
        hats, partial = stats.new_empty(nodes, c + 1), stats.new_empty(grid.programs, 2, c)
    pushes = grad_nodes * kept[0]
    inner: tuple[Any, ...] = (pushes, kept, grad, mask, stats, scale, shift, seed, d_told, hats)
    flags = {"PARTS": told.shape[1] // c, "SITE": site, "numbers": (threshold(dropout), rescale(dropout))}
    grid.over_nodes(kernels.backward_sources, told, logits, *plan[3:], *inner, partial, **flags)
    if partial is not None:
        sums = products.column_sums(partial.flatten(1)).view(2, c)
    over = sums if training else None
    grid.over_nodes(
        kernels.backward_targets, told, logits, *plan[:3], *inner, over, grad_nodes.contiguous(), change, **flags
    )  # fmt: skip
    gradients = [d_told]
    if edge_attr is not None and change is not None:
        added, few = grad if residual else None, edges <= products.MANY
        if few:
            gradients += products.backward(change, edge_attr, (weight,), added=added)
        else:
            _, d_weight, _ = products.backward(change, edge_attr, (weight,), need_x=False, biased=False)
            d_bias = products.column_sums(d_told[:, :c], bias.dtype)  # Σ_i ∂t_i: edges are many, nodes few
            if known:
                d_edges, _, _ = products.backward(change, edge_attr, (weight,), need_weights=False, added=added)
            else:
                d_edges = _edge_gradient(room, change, edge_attr, weight, added)
            gradients += [d_edges, d_weight, d_bias]
    if scale is not None:
        gradients.append(stats.new_zeros(2, c) if sums is None else sums)
    return gradients


def _edge_gradient(room: Tensor, change: Tensor, e: Tensor, weight: Tensor, added: Tensor | None) -> Tensor:
    """∂e = ∂ℓ W + ∂e', in the memory of ∂ℓ: a second tensor of size E would not fit where the first just does."""
    edges = change.shape[0]
    rows = room.shape[0] - edges
    for first in range(0, edges, rows):
        place = slice(first, min(first + rows, edges))
        more = None if added is None else added[place]
        products.backward(change[place], e[place], (weight,), need_weights=False, added=more, out=room[place])
    return room[:edges]


@_messages_backward.register_fake
def _(grad_nodes: Tensor, grad_edges: Tensor | None, saved: Sequence[Any], *_: Any) -> list[Tensor]:
    edge_attr, weight, bias, scale = saved[1:5]
    gradients = [grad_nodes.new_empty(grad_nodes.shape[0], 4 * grad_nodes.shape[1])]
    if edge_attr is not None:
        gradients += [tensor.new_empty(tensor.shape) for tensor in (edge_attr, weight, bias)]
    return gradients if scale is None else [*gradients, scale.new_empty((2, scale.shape[0]), dtype=torch.float32)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.numbers, fixed = inputs[7:13], inputs[6]
    _, _, stats, kept, logits = output
    # Not the running statistics, which are changed in place after the op; what it used of them is in its results.
    ctx.save_for_backward(*inputs[:6], *fixed[:9], stats, kept, logits)
    ctx.mark_non_differentiable(stats, kept, logits)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_nodes: Tensor | None, grad_edges: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    # Nothing in a list has a gradient, which ``torch.library`` wants to hear of each of its tensors.
    absent = [[None] * len(need) if isinstance(need, list) else None for need in ctx.needs_input_grad[6:]]
    if grad_nodes is None and grad_edges is None:
        return (*[None] * 6, *absent)
    saved = ctx.saved_tensors
    if torch.is_grad_enabled():  # somebody will differentiate the result
        needed = ctx.needs_input_grad[:6]
        return (*composed_gradients(_composed(ctx.numbers, saved), saved[:6], needed, grad_nodes, grad_edges), *absent)
    _, training, residual, _, dropout, site = ctx.numbers
    if grad_nodes is None:
        grad_nodes = saved[0].new_zeros(saved[-2].shape[1:])
    d_told, *others = _messages_backward(grad_nodes, grad_edges, saved, training, residual, dropout, site)
    d_edges = others[:3] if saved[1] is not None else [None] * 3
    d_norm = [None, None]
    if saved[4] is not None:
        d_shift, d_scale = others[-1].unbind()
        d_norm = [d_scale.to(saved[4].dtype), d_shift.to(saved[5].dtype)]
    return (d_told, *d_edges, *d_norm, *absent)


def _composed(numbers: Any, saved: Sequence[Any]) -> Any:
    """The op made of PyTorch's: a function of what nodes tell, e, W, bias, γ and β."""
    norm_eps, _, residual, eps, dropout, site = numbers
    edge_index, mask, seed, stats = saved[12:16]

    def function(told: Tensor, e: Any, weight: Any, bias: Any, scale: Any, shift: Any) -> tuple[Tensor, Tensor]:
        def update(logits: Tensor) -> Tensor:
            if scale is not None:
                logits = normalized_by(stats, logits, scale, shift, mask, norm_eps)
            return dropped(logits.relu(), seed, site, dropout)

        def project(rows: Tensor) -> Tensor:
            return F.linear(rows, weight, bias)

        t, s, b, own = told.chunk(4, 1)
        inputs = Inputs(t, (), edge_index, e, project, residual=residual, eps=eps)
        nodes, edges = composed(t, s, b, inputs, partial(partial, update))
        return nodes + own, edges

    return function


_messages.register_autograd(_backward, setup_context=_setup)


class Update(NamedTuple):
    """What happens to nodes after the op: the norm, real rows, the seed of dropout, and the form as norms have it."""

    norm: NormState
    mask: Tensor | None
    seed: Tensor | None
    form: tuple[Any, ...]


class _WithUpdate:
    """The op with x_i + drop(ReLU(norm(h_i))) after it, where both are one step of autograd: its parts, as of an `Op`.

    After the arguments of the op come x (``None``: it is not added), γ, β and an `Update`.
    """

    @staticmethod
    def function(told: Tensor, *others: Any) -> tuple[Tensor, ...]:
        *messages, x, scale, shift, update = others
        nodes, edges, stats, kept, logits = _messages.function(told, *messages)
        norm, mask, seed, form = update
        moving = (norm.batches, None, norm.momentum) if norm.training else ()
        out, node_stats = norm_forward.function(
            nodes, None, x, scale, shift, None, None, norm.mean, norm.variance, None, None, mask, seed, *form[:2],
            norm.eps, *form[2:], norm.training, *moving,
        )  # fmt: skip
        return out, edges, stats, kept, logits, nodes, node_stats

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *_, x, scale, shift, ctx.update = inputs
        _, _, stats, kept, logits, nodes, node_stats = output
        _setup(ctx, inputs, (nodes, nodes, stats, kept, logits))
        ctx.save_for_backward(*ctx.saved_tensors, x, scale, shift, nodes, node_stats)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_edges: Tensor | None) -> tuple[Any, ...]:
        *saved, x, scale, shift, nodes, node_stats = ctx.saved_tensors
        norm, mask, seed, form = ctx.update
        if torch.is_grad_enabled():  # somebody will differentiate the result
            messages, needs = _composed(ctx.numbers, saved), ctx.needs_input_grad

            def composed(*inputs: Any) -> tuple[Tensor, Tensor]:
                h, edges = messages(*inputs[:6])
                x, scale, shift = inputs[6:]
                out = composed_norm(h, None, x, scale, shift, None, None, mask, seed, node_stats, norm.eps, form)
                return out, edges

            inputs, needed = (*saved[:6], x, scale, shift), (*needs[:6], *needs[-4:-1])
            gradients = composed_gradients(composed, inputs, needed, grad, grad_edges)
            return (*gradients[:6], *[None] * (len(needs) - 10), *gradients[6:], None)
        d_nodes = d_scale = d_shift = d_x = None
        if grad is not None:
            kept = (nodes, None, x, scale, shift, None, None, mask, seed, node_stats)
            sums, d_nodes = norm_backward.function(grad, kept, *form)
            d_shift, d_scale = (row.to(scale.dtype) for row in sums.unbind())
            d_x = None if x is None else grad.to(x.dtype)
        ctx.saved_tensors = saved
        return (*_backward(ctx, d_nodes, grad_edges)[:-4], d_x, d_scale, d_shift, None)


def gated_messages(
    inputs: Inputs, norm: NormState | None, plan: EdgePlan, need_edges: bool, update: Update | None
) -> tuple[Tensor, Tensor | None, bool]:
    """See ``gssc.ops.gated_gcn``; weights and the state of norms are used without calling the modules.

    Last, whether the ``update`` of nodes is done.
    """
    x, tell, edge_index, edge_attr, lin_edge, _, mask, residual, eps, dropout, seed, site, _ = inputs
    state: Any = (*[None] * 5, 0.0, 0.0, False) if norm is None else norm
    scale, shift, mean, variance, batches, norm_eps, momentum, training = state
    moves = training and momentum is not None and not is_traced(x)  # with the op itself, as in ``norm``
    merged, told = moves >= training and mergeable(x, *tell), x
    if merged:
        autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if autocast else x.dtype
        c: int = tell[0].out_features  # type: ignore[assignment]
    else:
        told = torch.cat([module(x) for module in tell], 1)
        dtype, c = told.dtype, told.shape[1] // 4
    linear: Any = lin_edge
    weight, bias = weight_and_bias(linear) if linear is not None else (None, None)
    check_shapes(("lin_edge.weight", weight, (c, c)), ("norm.weight", scale, (c,)))
    edges: tuple[Any, ...] = (None, None, None)
    if edge_attr is not None and weight is not None and bias is not None:
        edges = edge_attr.to(dtype).contiguous(), weight.to(dtype), bias.to(dtype)
    keep = not is_traced(x) and edge_index.shape[1] * c <= KEPT
    narrow_mask = None if mask is None else mask.contiguous().view(torch.uint8)
    fixed = [*plan, edge_index.contiguous(), narrow_mask, seed if dropout else None, mean, variance]
    others: tuple[Any, ...] = (
        *edges, scale, shift, fixed, norm_eps, training, residual, eps, dropout, site, need_edges,
        *((batches, momentum) if moves else (None, 0.0)), keep,
    )  # fmt: skip
    if merged:
        weights, biases = zip(*map(weight_and_bias, tell), strict=True)
        step: Any = _messages
        if update is not None:
            step, others = _WithUpdate, (*others, x if residual else None, *update.norm[:2], update)
        nodes, new_edges = op_of_linears(step, x, weights, biases, *others, reads=3, returned=2)
    else:
        nodes, new_edges, stats, *_ = _messages(told, *others)
        if training and not moves:
            move_running_statistics(stats[2:], mean, variance, batches, momentum)
    return nodes, new_edges if need_edges else None, merged and update is not None
