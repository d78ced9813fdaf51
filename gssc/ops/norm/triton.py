"""Norms of residuals in Triton.

    forward     u_b = x + drop(h_b),  (n, μ_b, Σ(u_b - μ_b)²),  y = Σ_b γ_b û_b + β_b
    backward    Σg, Σg û_b,  ∂u_b = γ_b/√(v_b + ε) ⊙ (g - (Σg + û_b Σg û_b)/n),  ∂h_b = drop(∂u_b),  ∂x = Σ_b ∂u_b

u and û are computed anew in every pass. Where the batch is small (``HELD`` rows) a program holds all rows of a few
channels in registers, and each direction is one launch; else moments and sums are first made per share of the rows, and
merged in a fixed order: no atomics, so results repeat bit by bit. Running statistics move on in the same launch,
but by PyTorch's ops where a program is traced, as the backward pass is made of where that is to be differentiated.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import contiguous, kernels_of, launch
from gssc.ops.linears.triton import column_sums
from gssc.ops.norm.naive import Branch, NormState, composed, move_running_statistics
from gssc.ops.op import composed_gradients, empty_like, is_traced, op, promoted
from gssc.ops.random import rescale, threshold
from gssc.ops.triton_support import multiprocessors, power_of_two

HELD = 2048  # rows that one program may hold
HELD_CHANNELS = 4  # then: one load of a thread, and many programs
SHARES = 2  # of the rows, per processor, where there are more
MERGED, MERGED_CHANNELS = 1024, 4  # partial moments that one step merges, of so many channels

# Probabilities of dropout of both branches, and whether x is added to them; then whether there is a ReLU, and the site.
Drops = tuple[float, float]
Adds = tuple[bool, bool]
Form = tuple[Any, Any, bool, int]


@lru_cache(maxsize=256)
class _Job:
    """What all kernels of one call take besides their tensors, and how they are cut."""

    def __init__(
        self, rows: int, c: int, added: bool, seeded: bool, drops: Drops, adds: Adds, activation: bool, site: int
    ) -> None:
        self.rows, self.c = rows, c
        self.numbers = (*map(threshold, drops), *map(rescale, drops), rows)  # after their tensors
        self.flags = {"ACTIVATION": activation, "SITE": site}
        for branch, (drop, add) in enumerate(zip(drops, adds, strict=True), 1):
            self.flags |= {f"RESIDUAL{branch}": added and add, f"DROPOUT{branch}": seeded and drop > 0}

    def launch(
        self,
        kernel: Any,
        *tensors: Any,
        held: bool = False,
        programs: int | None = None,
        numbers: tuple[int, ...] = (),
        **more: Any,
    ) -> None:
        """Blocks of 64 rows by up to 64 channels; where they are held, all rows by few channels."""
        block_n, block_c = 64, min(power_of_two(self.c, 16), 64)
        if held:
            block_n, block_c = power_of_two(self.rows, 16), HELD_CHANNELS
        grid = max(1, -(-self.rows // block_n)) if programs is None else programs, -(-self.c // block_c)
        warps = max(1, min(block_n * block_c // 512, 16))  # 16 numbers per thread: no spills
        launch(
            kernel, grid, *tensors, numbers=(*numbers, *self.numbers),
            C=self.c, BLOCK_N=block_n, BLOCK_C=block_c, **self.flags, **more, num_warps=warps,
        )  # fmt: skip


def _prepared(tensors: Sequence[Any], form: Form) -> tuple[list[Any], _Job]:
    """x, both h, the mask and the seed as kernels take them, and the job."""
    first, second, x, mask, seed = tensors
    known = None if mask is None else mask.contiguous().view(torch.uint8)
    (rows, c), (drops, adds, activation, site) = first.shape, form
    job = _Job(rows, c, x is not None, seed is not None, tuple(drops), tuple(adds), activation, site)
    return [*contiguous(x, first, second), known, seed], job


@op("gssc::residual_norm")
def norm_forward(
    first: Tensor, second: Tensor | None, x: Tensor | None,
    weight: Tensor, bias: Tensor, weight2: Tensor | None, bias2: Tensor | None,
    mean: Tensor, variance: Tensor, mean2: Tensor | None, variance2: Tensor | None,
    mask: Tensor | None, seed: Tensor | None, dropouts: Sequence[float], residuals: Sequence[bool],
    eps: float, activation: bool, site: int, training: bool,
    batches: Tensor | None = None, batches2: Tensor | None = None, momentum: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Y [N, C], and statistics [B, 5, C]: mean and 1/√(variance + ε) in use, mean, Σ(u - mean)² and n of the batch.

    Where ``batches`` are given, running statistics move on; not where a program is traced.
    """
    kernels = kernels_of("norm")
    out, stats = _empty_results(first, second, x)
    if stats.numel() == 0:
        return out.zero_(), stats
    rows, job = _prepared((first, second, x, mask, seed), (dropouts, residuals, activation, site))
    held, moves = training and job.rows <= HELD, dict[str, Any](EPS=eps, MOMENTUM=momentum)
    if training and not held:
        share = max(64, -(-job.rows // (SHARES * multiprocessors(first.device))))
        programs = -(-job.rows // share)
        partial = stats.new_empty(programs, len(stats), 3, job.c)
        job.launch(kernels.forward_moments, *rows, partial, numbers=(share,), programs=programs)
        merge_moments(partial, (mean, variance, batches, mean2, variance2, batches2), stats, eps, momentum)
        batches = batches2 = None
    tensors = (weight, bias, mean, variance, batches, weight2, bias2, mean2, variance2, batches2, stats, out)
    job.launch(kernels.forward_rows, *rows, *tensors, held=held, **moves, HELD=held, RUNNING=not training)
    return out, stats


def merge_moments(partial: Tensor, norms: Sequence[Tensor | None], stats: Tensor, eps: float, momentum: float) -> None:
    """Statistics [B, 5, C] from moments of shares of the rows, [shares, B, 3, C], in a fixed order.

    Of both norms running mean and variance, and the number of batches, with which they move on.
    """
    c = stats.shape[-1]
    launch(
        kernels_of("norm").forward_merge, (1, -(-c // MERGED_CHANNELS)), partial, *norms, stats,
        numbers=(partial.shape[0],), EPS=eps, MOMENTUM=momentum, C=c, ROWS=MERGED, BLOCK_C=MERGED_CHANNELS, num_warps=8,
    )  # fmt: skip


@norm_forward.register_fake
def _empty_results(first: Tensor, second: Tensor | None, x: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    shape = (1 if second is None else 2, 5, first.shape[1])
    stats = first.new_empty(shape, dtype=promoted(first, second, x, least=torch.float32))
    return first.new_empty(first.shape, dtype=promoted(first, second, x)), stats


@op("gssc::residual_norm_backward")
def norm_backward(
    grad: Tensor, saved: Sequence[Tensor | None],
    dropouts: Sequence[float], residuals: Sequence[bool], activation: bool, site: int,
) -> list[Tensor]:  # fmt: skip
    """Σg and Σgû of each branch [2 B, C], ∂h of each, and ∂x where x was added before a norm."""
    kernels = kernels_of("norm")
    tensors: Any = saved
    first, second, x, weight, bias, weight2, _, mask, seed, stats = tensors
    gradients = _empty_gradients(grad, saved, dropouts, residuals, activation)
    if stats.numel() == 0 or first.numel() == 0:
        return [tensor.zero_() for tensor in gradients]
    rows, job = _prepared((first, second, x, mask, seed), (dropouts, residuals, activation, site))
    sums, d1, *rest = gradients
    d2 = None if second is None else rest.pop(0)
    inputs = (*rows, grad.contiguous(), weight, bias, weight2, stats, rest[0] if rest else None, d1, d2)
    if job.rows <= HELD:
        job.launch(kernels.backward_rows, *inputs, sums, held=True, SUM=True, SPREAD=True)
        return gradients
    partial = stats.new_empty(-(-job.rows // 64), 4, job.c)
    job.launch(kernels.backward_rows, *inputs, partial, SUM=True, SPREAD=False)
    # Without a second branch its rows were not written.
    gradients[0] = sums = column_sums(partial.flatten(1)[:, : sums.numel()]).view_as(sums)
    job.launch(kernels.backward_rows, *inputs, sums, SUM=False, SPREAD=True)
    return gradients


@norm_backward.register_fake
def _empty_gradients(
    grad: Tensor, saved: Sequence[Any], dropouts: Any, residuals: Sequence[bool], activation: bool, *_: Any
) -> list[Tensor]:
    (first, second, x), stats = saved[:3], saved[-1]
    before = any(residuals) and not activation
    rows = [part for part in (first, second, x if before else None) if part is not None]
    return [stats.new_empty(2 * len(stats), first.shape[1]), *map(empty_like, rows)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *drops, ctx.eps, activation, site = inputs[13:18]
    ctx.form = (*drops, activation, site)
    # Not the running statistics, which move on: what was used of them is in the output.
    ctx.save_for_backward(*inputs[:7], *inputs[11:13], output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 22
    saved = ctx.saved_tensors  # once: where layers are computed anew, it can be asked for once only
    _, second, x, weight, bias, weight2, bias2, *_ = saved
    if torch.is_grad_enabled():  # somebody will differentiate the result
        fixed = (*saved[7:], ctx.eps, ctx.form)
        return composed_gradients(lambda *views: composed_norm(*views, *fixed), saved[:7], ctx.needs_input_grad, grad)
    sums, d_first, *rest = norm_backward(grad, saved, *ctx.form)
    d_second = None if second is None else rest.pop(0)
    d_x = rest[0] if rest else None
    _, residuals, activation, _ = ctx.form
    if activation and x is not None and residuals[0]:
        d_x = grad.to(x.dtype)
    d_bias, d_weight, *others = sums.unbind()
    d_bias2, d_weight2 = others or (None, None)
    parameters = ((d_weight, weight), (d_bias, bias), (d_weight2, weight2), (d_bias2, bias2))
    d_norms = (d if d is None or d.dtype == like.dtype else d.to(like.dtype) for d, like in parameters)
    return d_first, d_second, d_x, *d_norms, *[None] * 15


def composed_norm(
    first: Tensor, second: Tensor | None, x: Tensor | None, weight: Tensor, bias: Tensor, weight2: Any, bias2: Any,
    mask: Tensor | None, seed: Tensor | None, stats: Tensor, eps: float, form: Form,
) -> Tensor:  # fmt: skip
    """The op made of PyTorch's, differentiable through statistics of the batch; those in use without it are known."""

    def norm(hidden: Tensor, number: int) -> Tensor:
        scale, shift = ((weight, bias), (weight2, bias2))[number]
        return normalized_by(stats[number], hidden, scale, shift, mask, eps)

    rows = [part.to(stats.dtype) for part in (first, second) if part is not None]
    return composed(norm, x, rows, seed, *form)


def normalized_by(stats: Tensor, rows: Tensor, scale: Tensor, shift: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    """γû + β of real rows, differentiable through statistics of the batch; ``stats`` [5, C] has those without one."""
    real = torch.ones_like(rows[:, :1], dtype=torch.bool) if mask is None else mask.bool().unsqueeze(1)
    mean, inverse, _, _, n = stats
    center = torch.where(real, rows, 0.0).sum(0) / n.clamp(min=1)
    squares = torch.where(real, rows - center, 0.0).square().sum(0)
    enough = n >= 2
    inverse = torch.where(enough, torch.rsqrt(squares / n.clamp(min=1) + eps), inverse)
    return torch.where(real, (rows - torch.where(enough, center, mean)) * inverse * scale + shift, 0.0)


norm_forward.register_autograd(_backward, setup_context=_setup)


def residual_norm(
    x: Tensor | None, branches: Sequence[Branch], states: Sequence[NormState], mask: Tensor | None,
    seed: Tensor | None, site: int, activation: bool,
) -> Tensor:  # fmt: skip
    """See ``naive.py``."""
    one, norm, two = branches[0], states[0], None
    other: tuple[Any, ...] = (None,) * 5
    dropouts, residuals = [one.dropout, 0.0], [one.residual, False]
    if len(branches) == 2:
        two, other = branches[1], states[1][:5]
        dropouts[1], residuals[1] = two.dropout, two.residual
    # An op with a gradient must not change its arguments where somebody watches: then statistics move on by another.
    moves = norm.training and norm.momentum is not None and not is_traced(one.rows)
    out, stats = norm_forward(
        one.rows, None if two is None else two.rows, x, norm.weight, norm.bias, *other[:2], norm.mean, norm.variance,
        *other[2:4], mask, seed, dropouts, residuals, norm.eps, activation, site, norm.training,
        *((norm.batches, other[4], norm.momentum) if moves else (None, None, 0.0)),
    )  # fmt: skip
    if norm.training and not moves:
        for state, rows in zip(states, stats, strict=True):
            move_running_statistics(rows[2:], *state[2:5], state.momentum)
    return out
