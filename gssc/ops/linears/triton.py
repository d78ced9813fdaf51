"""Linears of one input, and their gradients, in one launch each where there are few rows.

    forward     Y = [x W₀ᵀ + b₀ | x W₁ᵀ + b₁ | …], or drop(ReLU(Y)) of one
    backward    ∂x = Σ ∂Y W (+ what else reaches x), ∂W = ∂Yᵀ x, ∂b = Σ ∂Y

Weights are read where modules keep them. Sums over rows are made over a share of the rows by each program, and added in
order by a second launch: results repeat bit by bit. Where there are more rows, the host has time to copy weights side
by side, and the products are cuBLAS's; but not exact ones, which it makes without tensor cores, nor those that have
more to do than the product: what else reaches x, the gradient of an activation, dropout.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import kernels_of, launch
from gssc.ops.op import empty_like, promoted
from gssc.ops.random import dropped, rescale, threshold
from gssc.ops.triton_support import FLOATS, multiprocessors, power_of_two, wants_exact

SHARE = 128  # rows over which one program sums at least
PROGRAMS = 8  # per multiprocessor at most; then shares grow
SUMMED = 256  # rows of partial sums that one program adds up; where there are more, they are added in two steps
MANY = 1 << 15  # rows from which on products are cuBLAS's
BLOCK_N = 64  # rows of a block
LARGE_N, STEP = 128, 32  # rows of a block, and what a step of its sum takes, where there are many rows
PARTS = 4  # the most Linears of one launch
Tensors = tuple[Tensor, ...]


class _Plan:
    """How the work is cut: blocks of rows by 32 or 64 channels; where there are ``many`` rows, whichever pads less."""

    def __init__(self, d: int, c: int, parts: int, exact: bool, many: bool) -> None:
        block = 64 if max(d, c) > 96 else 32
        self.block_n, step, stages = BLOCK_N, block, 2
        if many:
            block = 64 if -(-c // 64) * 64 == -(-c // 32) * 32 else 32
            self.block_n, step, stages = LARGE_N, STEP, 3
        self.wide, self.blocks, self.empty = -(-d // block), -(-c // block) * parts, (None,) * (PARTS - parts)
        sizes = {"D": d, "C": c, "PARTS": parts, "BLOCK_N": self.block_n, "BLOCK": block, "STEP": step}
        self.constants = sizes | {"PRECISION": "tf32x3" if exact else "tf32"}
        self.effort = {"num_warps": 4, "num_stages": stages}


cut = lru_cache(maxsize=256)(_Plan)


def _plan(x: Tensor, weights: Tensors, anyway: bool = False) -> _Plan | None:
    """None where the products are cuBLAS's: of many rows, if not exact or ``anyway`` better here; or of other types.

    Also where results are differentiated.
    """
    parts, dtype, rows = len(weights), x.dtype, x.shape[0]
    if torch.is_grad_enabled() or rows == 0 or parts > PARTS or dtype not in FLOATS or weights[0].dtype != dtype:
        return None
    exact, many = wants_exact(x), rows > MANY
    if many and not (exact or anyway):
        return None
    c, d = weights[0].shape
    return cut(d, c, parts, exact, many) if c and d else None


def forward(
    x: Tensor, weights: Tensors, biases: Tensors = (), *, activation: bool = False, seed: Tensor | None = None,
    p: float = 0.0, site: int = 0, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Y [N, parts · C] of x [N, D], weights [C, D] and biases [C]; drop(ReLU(Y)) where there is an activation.

    It is written to ``out`` where that is given.
    """
    plan = _plan(x, weights, anyway=seed is not None)  # there dropout would be a launch of its own
    if plan is not None:
        kernels = kernels_of("linears")
        if out is None:
            out = x.new_empty(x.shape[0], len(weights) * weights[0].shape[0])
        told = biases if biases else (None,) * len(weights)
        launch(
            kernels.forward, (-(-x.shape[0] // plan.block_n), plan.blocks), x.contiguous(), *weights, *plan.empty,
            *told, *plan.empty,
            seed, out, numbers=(threshold(p), rescale(p), x.shape[0]),
            **plan.constants, ACTIVATION=activation, SITE=site, **plan.effort,
        )  # fmt: skip
        return out
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]
    if not biases:
        return torch.mm(x, weight.t(), out=out)
    bias = torch.cat(biases) if len(biases) > 1 else biases[0]
    if activation and seed is None:
        return torch._addmm_activation(bias, x, weight.t())  # ReLU, in the product itself
    out = torch.addmm(bias, x, weight.t(), out=out)
    return dropped(out.relu(), seed, site, p) if activation else out


def backward(
    grad: Tensor, x: Tensor, weights: Tensors, *, biased: bool = True, need_x: bool = True,
    need_weights: bool = True, added: Tensor | None = None, hidden: bool = False, p: float = 0.0,
    out: Tensor | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """∂x [N, D], ∂W [parts · C, D] and ∂b [parts · C] from ∂Y; None for what is not asked for.

    What is ``added`` [N, D] comes to ∂x, which has its type, or is written to ``out``. Where x is ``hidden``,
    drop(ReLU(·)), ∂x is the gradient of what stood before.
    """
    rows, d = x.shape
    if need_x and need_weights and rows > MANY:
        d_x, *_ = backward(grad, x, weights, need_weights=False, added=added, hidden=hidden, p=p, out=out)
        _, *others = backward(grad, x, weights, biased=biased, need_x=False)
        return d_x, *others
    more = x.dtype == torch.float32 and (hidden or added is not None)  # in half precision not measured
    plan = _plan(x, weights, anyway=more) if need_x or rows <= MANY else None
    if plan is not None:
        kernels = kernels_of("linears")
        width, d_x, sums, shares = grad.shape[1], None, None, 0
        if need_x:
            d_x = empty_like(x if added is None else added) if out is None else out
        most = max(PROGRAMS * multiprocessors(x.device) // (plan.blocks * plan.wide), 1)
        share = -(-max(SHARE, -(-rows // most)) // plan.block_n) * plan.block_n
        if need_weights:
            shares = -(-rows // share)
            dtype = x.dtype if shares == 1 else torch.float32
            sums = torch.empty(shares, width * (d + biased), dtype=dtype, device=x.device)
        x = x.contiguous()
        programs = ((-(-rows // plan.block_n) if need_x else 0) + shares * plan.blocks) * plan.wide
        launch(
            kernels.backward, (programs,), grad.contiguous(), x, *weights, *plan.empty, added, x if hidden else None,
            d_x, sums, numbers=(rescale(p), share, rows), **plan.constants, BIASED=biased, **plan.effort,
        )  # fmt: skip
        if sums is None:
            return d_x, None, None
        total = sums[0] if shares == 1 else column_sums(sums, x.dtype)
        return d_x, total[: width * d].view(width, d), total[width * d :] if biased else None
    d_x = None
    if need_x:
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        if hidden:
            d_x = torch.ops.aten.threshold_backward(grad @ (weight * rescale(p) if p else weight), x, 0)
        elif added is not None and added.dtype == weight.dtype:
            d_x = torch.addmm(added, grad, weight, out=out)
        else:
            d_x = torch.mm(grad, weight, out=out) if added is None else added + grad @ weight
    if not need_weights:
        return d_x, None, None
    return d_x, grad.t() @ x, grad.sum(0) if biased else None


def column_sums(rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The sum over N of rows [N, C] in steps of fixed order, [C]; in ``dtype``, or in theirs."""
    (n, c), dtype = rows.shape, rows.dtype if dtype is None else dtype
    if n == 0 or c == 0:
        return rows.new_zeros(c, dtype=dtype)
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    shares = -(-n // SUMMED)
    out = rows.new_empty((shares, c), dtype=dtype if shares == 1 else promoted(rows, least=torch.float32))
    block_c = 128 if c >= 4096 else min(power_of_two(c, 16), 32)
    launch(
        kernels_of("linears").column_sums, (-(-c // block_c), shares), rows, out,
        numbers=(rows.stride(0), min(n, SUMMED), n, c),
        BLOCK_N=16 if block_c == 128 else 64, BLOCK_C=block_c, num_warps=4,
    )  # fmt: skip
    return out[0] if shares == 1 else column_sums(out, dtype)
