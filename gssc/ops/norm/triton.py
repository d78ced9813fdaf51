"""Norms of residuals in Triton.

    forward     u_b = x + drop(h_b),  (n, μ_b, Σ(u_b - μ_b)²),  y = Σ_b γ_b û_b + β_b
    backward    Σg, Σg û_b,  ∂u_b = γ_b/√(v_b + ε) ⊙ (g - (Σg + û_b Σg û_b)/n),  ∂h_b = drop(∂u_b),  ∂x = Σ_b ∂u_b

u and û are computed anew in every pass. Where the batch is small (``HELD`` rows) a program holds all rows of a few
channels in registers, and each direction is one launch; else moments and sums are first made per share of the rows, and
merged in a fixed order: no atomics, so results repeat bit by bit. Running statistics move on in a launch of their own,
since an op with a gradient must not change its arguments. Where the backward pass is itself to be differentiated, it is
made of PyTorch's ops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import launch
from gssc.ops.norm import naive as random
from gssc.ops.norm.types import Branch, NormState
from gssc.ops.op import composed_gradients, op
from gssc.ops.triton_support import multiprocessors, power_of_two

HELD = 2048  # rows that one program may hold
HELD_CHANNELS = 4  # then: one load of a thread, and many programs
SHARES = 2  # of the rows, per processor, where there are more
MERGED = 64  # partial moments that one step merges


def wide(*tensors: Tensor | None) -> torch.dtype:
    """The dtype of sums and statistics."""
    double = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32


@dataclass(frozen=True)
class _Job:
    """One call: sizes, flags and numbers of its kernels."""

    first: Tensor
    second: Tensor | None
    mask: Tensor | None
    seed: Tensor | None
    p1: float
    p2: float
    flags: dict[str, Any]

    @property
    def rows(self) -> int:
        return self.first.shape[0]

    @property
    def c(self) -> int:
        return self.first.shape[1]

    @property
    def held(self) -> bool:
        return self.rows <= HELD

    @property
    def numbers(self) -> tuple[int, int, float, float, int]:
        """Thresholds and scales of dropout, and the number of rows."""
        p1, p2 = self.p1, self.p2
        return random.threshold(p1), random.threshold(p2), random.scale(p1), random.scale(p2), self.rows

    def launch(self, kernel: Any, *arguments: Any, **more: Any) -> None:
        """Blocks of 64 rows by up to 64 channels; where they are held, all rows by few channels."""
        block_n, block_c = 64, min(power_of_two(self.c, 16), 64)
        if more.pop("held", False):
            block_n, block_c = power_of_two(self.rows, 16), HELD_CHANNELS
        grid = more.pop("programs", max(1, -(-self.rows // block_n))), -(-self.c // block_c)
        warps = max(1, min(block_n * block_c // 512, 16))  # 16 numbers per thread: no spills
        launch(
            kernel, grid, *arguments, C=self.c, BLOCK_N=block_n, BLOCK_C=block_c, **self.flags, **more, num_warps=warps
        )


def _job(
    first: Tensor,
    second: Tensor | None,
    x: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    dropouts: Sequence[float],
    residuals: Sequence[bool],
    eps: float,
    activation: bool,
    site: int,
) -> _Job:
    import triton.language as tl

    known = None if mask is None else mask.contiguous().view(torch.uint8)
    flags = {
        "ACC": tl.float64 if wide(first, second, x) == torch.float64 else tl.float32,
        "SITE": site,
        "EPS": eps,
        "HAS_MASK": mask is not None,
        "TWO": second is not None,
        "RESIDUAL1": x is not None and residuals[0],
        "RESIDUAL2": x is not None and second is not None and residuals[1],
        "DROPOUT1": seed is not None and dropouts[0] > 0,
        "DROPOUT2": seed is not None and second is not None and dropouts[1] > 0,
        "ACTIVATION": activation,
    }
    return _Job(first, second, known, seed, dropouts[0], dropouts[1], flags)


def _contiguous(*tensors: Tensor | None) -> list[Any]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _output_dtype(first: Tensor, second: Tensor | None, x: Tensor | None) -> torch.dtype:
    dtype = first.dtype
    for tensor in (second, x):
        dtype = dtype if tensor is None else torch.promote_types(dtype, tensor.dtype)
    return dtype


@op("gssc::residual_norm")
def norm_forward(
    first: Tensor,
    second: Tensor | None,
    x: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor | None,
    bias2: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    mean2: Tensor | None,
    variance2: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    dropouts: Sequence[float],
    residuals: Sequence[bool],
    eps: float,
    activation: bool,
    site: int,
    training: bool,
) -> tuple[Tensor, Tensor]:
    """Y [N, C], and statistics [B, 5, C]: mean and 1/√(variance + ε) in use, mean, Σ(u - mean)² and n of the batch."""
    from gssc.ops.norm import kernels

    out = first.new_empty(first.shape, dtype=_output_dtype(first, second, x))
    branches = 1 if second is None else 2
    stats = first.new_empty((branches, 5, first.shape[1]), dtype=wide(first, second, x))
    if stats.numel() == 0:
        return out.zero_(), stats
    first, second, x = _contiguous(first, second, x)
    job = _job(first, second, x, mask, seed, dropouts, residuals, eps, activation, site)
    norms = (weight, bias, mean, variance, weight2, bias2, mean2, variance2)
    tensors = (x, first, second, job.mask, seed, *norms, stats, out, *job.numbers)
    if training and job.held:
        job.launch(kernels.forward_held, *tensors, held=True)
        return out, stats
    if training:
        share = max(64, -(-job.rows // (SHARES * multiprocessors(first.device))))
        programs = -(-job.rows // share)
        partial = stats.new_empty(programs, branches, 3, job.c)
        parts = (x, first, second, job.mask, seed, partial, *job.numbers, share)
        job.launch(kernels.forward_moments, *parts, programs=programs)
        launch(
            kernels.forward_merge, (1, -(-job.c // 16)), partial, mean, variance, mean2, variance2, stats, programs,
            EPS=eps, C=job.c, ROWS=MERGED, BLOCK_C=16, ACC=job.flags["ACC"], TWO=branches == 2, num_warps=4,
        )  # fmt: skip
    job.launch(kernels.forward_apply, *tensors, RUNNING=not training, programs=max(1, -(-job.rows // 64)))
    return out, stats


@norm_forward.register_fake
def _(first: Tensor, second: Tensor | None, x: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    out = first.new_empty(first.shape, dtype=_output_dtype(first, second, x))
    shape = (1 if second is None else 2, 5, first.shape[1])
    return out, first.new_empty(shape, dtype=wide(first, second, x))


@op("gssc::residual_norm_backward")
def norm_backward(
    grad: Tensor,
    first: Tensor,
    second: Tensor | None,
    x: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    stats: Tensor,
    dropouts: Sequence[float],
    residuals: Sequence[bool],
    eps: float,
    activation: bool,
    site: int,
) -> list[Tensor]:
    """Σg and Σgû of both branches [4, C], ∂h of each, and ∂x where x was added before a norm."""
    from gssc.ops.norm import kernels

    found = [stats.new_empty(4, first.shape[1])]
    found += [torch.empty_like(rows, memory_format=torch.contiguous_format) for rows in _rows(
        first, second, x, residuals, activation)]  # fmt: skip
    if stats.numel() == 0 or first.numel() == 0:
        return [tensor.zero_() for tensor in found]
    grad, first, second, x = _contiguous(grad, first, second, x)
    job = _job(first, second, x, mask, seed, dropouts, residuals, eps, activation, site)
    d2 = found[2] if second is not None else None
    dx = found[-1] if job.flags["RESIDUAL1"] or job.flags["RESIDUAL2"] else None
    inputs = (grad, x, first, second, job.mask, seed, weight, bias, weight2, stats, dx, found[1], d2)
    if job.held:
        job.launch(kernels.backward_rows, *inputs, found[0], *job.numbers, held=True, SUM=True, SPREAD=True)
        return found
    partial = stats.new_empty(-(-job.rows // 64), 4, job.c)
    job.launch(kernels.backward_rows, *inputs, partial, *job.numbers, SUM=True, SPREAD=False)
    # Without a second branch its rows of sums were not written.
    parts = 4 if second is not None else 2
    torch.sum(partial[:, :parts], 0, out=found[0][:parts])
    job.launch(kernels.backward_rows, *inputs, found[0], *job.numbers, SUM=False, SPREAD=True)
    return found


def _rows(
    first: Tensor, second: Tensor | None, x: Tensor | None, residuals: Sequence[bool], activation: bool
) -> list[Tensor]:
    """What has a gradient that the kernels write."""
    rows = [first] if second is None else [first, second]
    added = residuals[0] or (second is not None and residuals[1])
    return [*rows, x] if x is not None and added and not activation else rows


@norm_backward.register_fake
def _(
    grad: Tensor, first: Tensor, second: Tensor | None, x: Tensor | None, weight: Tensor, bias: Tensor,
    weight2: Tensor | None, mask: Tensor | None, seed: Tensor | None, stats: Tensor, dropouts: Sequence[float],
    residuals: Sequence[bool], eps: float, activation: bool, site: int,
) -> list[Tensor]:  # fmt: skip
    like = _rows(first, second, x, residuals, activation)
    found = [torch.empty_like(rows, memory_format=torch.contiguous_format) for rows in like]
    return [stats.new_empty(4, first.shape[1]), *found]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    first, second, x, weight, bias, weight2, bias2, *_, mask, seed = inputs[:13]
    ctx.form = inputs[13:18]
    # Not the running statistics, which move on: what was used of them is in the output.
    ctx.save_for_backward(first, second, x, weight, bias, weight2, bias2, mask, seed, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    first, second, x, weight, bias, weight2, bias2, mask, seed, stats = ctx.saved_tensors
    dropouts, residuals, eps, activation, site = ctx.form
    given: list[Tensor | None] = [None] * 19
    if grad is None:
        return tuple(given)
    if torch.is_grad_enabled():  # somebody will differentiate the result
        inputs = (first, second, x, weight, bias, weight2, bias2)
        fixed = (mask, seed, stats, *ctx.form)
        needed = [bool(need) for need in ctx.needs_input_grad[:7]]
        wide_grad = grad.to(torch.promote_types(grad.dtype, stats.dtype))
        gradients = composed_gradients(lambda *views: _composed(*views, *fixed), inputs, needed, wide_grad)
        return (*gradients, *[None] * 12)
    sums, *rows = norm_backward(
        grad, first, second, x, weight, bias, weight2, mask, seed, stats, dropouts, residuals, eps, activation, site
    )
    given[0] = rows[0]
    if second is not None:
        given[1] = rows[1]
    if x is not None:
        if activation:
            given[2] = grad.to(x.dtype) if residuals[0] else None
        elif residuals[0] or (second is not None and residuals[1]):
            given[2] = rows[-1]
    given[4], given[3] = sums[0].to(bias.dtype), sums[1].to(weight.dtype)
    if weight2 is not None and bias2 is not None:
        given[6], given[5] = sums[2].to(bias2.dtype), sums[3].to(weight2.dtype)
    return tuple(given)


def _composed(
    first: Tensor, second: Tensor | None, x: Tensor | None, weight: Tensor, bias: Tensor, weight2: Tensor | None,
    bias2: Tensor | None, mask: Tensor | None, seed: Tensor | None, stats: Tensor, dropouts: Sequence[float],
    residuals: Sequence[bool], eps: float, activation: bool, site: int,
) -> Tensor:  # fmt: skip
    """The op made of PyTorch's, differentiable through statistics of the batch; ``stats`` has others in use."""
    total: Tensor | None = None
    for number, (h, scale, shift) in enumerate(((first, weight, bias), (second, weight2, bias2))):
        if h is None or scale is None or shift is None:
            continue
        hidden = h.to(stats.dtype)
        if not activation:
            hidden = random.dropped(hidden, seed, site + number, dropouts[number])
            hidden = hidden + x if x is not None and residuals[number] else hidden
        real = torch.ones_like(hidden[:, :1], dtype=torch.bool) if mask is None else mask.unsqueeze(1)
        mean, inverse, _, _, n = stats[number]
        center = torch.where(real, hidden, 0.0).sum(0) / n.clamp(min=1)
        squares = torch.where(real, hidden - center, 0.0).square().sum(0)
        enough = n >= 2
        inverse = torch.where(enough, torch.rsqrt(squares / n.clamp(min=1) + eps), inverse)
        part = (hidden - torch.where(enough, center, mean)) * inverse * scale + shift
        part = torch.where(real, part, 0.0)
        total = part if total is None else total + part
    assert total is not None
    if activation:
        total = random.dropped(total.relu(), seed, site, dropouts[0])
        total = total + x if x is not None and residuals[0] else total
    return total


norm_forward.register_autograd(_backward, setup_context=_setup)


@op(
    "gssc::move_running_statistics",
    mutates_args=("mean", "variance", "batches", "mean2", "variance2", "batches2"),
)
def move_running_statistics(
    stats: Tensor,
    mean: Tensor,
    variance: Tensor,
    batches: Tensor,
    mean2: Tensor | None,
    variance2: Tensor | None,
    batches2: Tensor | None,
    momentum: float | None,
) -> None:
    """Running statistics of one or two norms take a batch into account, if it had two rows and more."""
    from gssc.ops.norm import kernels

    two, c = mean2 is not None, stats.shape[2]
    if c == 0:
        return
    import triton.language as tl

    launch(
        kernels.move_running, (2 if two else 1,), stats, mean, variance, batches, mean2, variance2, batches2,
        MOMENTUM=momentum or 0.0, C=c, BLOCK_C=power_of_two(c, 16), CUMULATIVE=momentum is None, TWO=two,
        ACC=tl.float64 if stats.dtype == torch.float64 else tl.float32, num_warps=1 if c <= 256 else 4,
    )  # fmt: skip


@move_running_statistics.register_fake
def _(*_: Any) -> None:
    return None


def residual_norm(
    x: Tensor | None,
    branches: Sequence[Branch],
    states: Sequence[NormState],
    mask: Tensor | None,
    seed: Tensor | None,
    site: int,
    activation: bool,
) -> Tensor:
    """Σ norm(x + drop(h)), or x + drop(ReLU(norm(h))); [N, C]."""
    one, norm, two = branches[0], states[0], None
    other: tuple[Any, ...] = (None,) * 5
    dropouts, residuals = [one.dropout, 0.0], [one.residual, False]
    if len(branches) == 2:
        two, other = branches[1], states[1][:5]
        dropouts[1], residuals[1] = two.dropout, two.residual
    out, stats = norm_forward(
        one.rows, None if two is None else two.rows, x, norm.weight, norm.bias, *other[:2], norm.mean, norm.variance,
        *other[2:4], mask, seed, dropouts, residuals, norm.eps, activation, site, norm.training,
    )  # fmt: skip
    if norm.training:
        move_running_statistics(stats, norm.mean, norm.variance, norm.batches, *other[2:], norm.momentum)
    return out
