"""The convolution in Triton: two passes over the nodes forward, two backward, and nothing of size n in between.

    forward     1  U = PᵀX_o                                       reads P, X_o
                2  H = P (A ⊙ U) + ((P⊙P) A_s) ⊙ X_s               reads P, X_s, writes H
    backward    1  V = PᵀG,  ∂A_s = (P⊙P)ᵀ(G ⊙ X_s),  ∂A = U ⊙ V   reads P, G, X_s
                2  ∂X_o = P (A ⊙ V),  ∂X_s = ((P⊙P) A_s) ⊙ G       reads P, G, writes ∂X_o, ∂X_s

That is n(3C + 2K) numbers forward and n(5C + 2K) backward, the least that two dependent passes can move. Pass 1 leaves
one partial sum per tile of nodes, added in a fixed order by a third, small kernel: no atomics, so results repeat bit by
bit. Graphs that fit into one tile take both passes in one program.

X_o and X_s may be columns of one tensor, as one product of x makes them; so are their gradients then. The gradient of
P, and derivatives of the backward pass, are those of ``torch.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gssc.ops.conv import torch as collapsed
from gssc.ops.conv.torch import Gradients, Saved
from gssc.ops.graph_sums.torch import to_state
from gssc.ops.launch import contiguous, kernels_of, launch
from gssc.ops.linears.triton import column_sums
from gssc.ops.op import composed_gradients, is_traced, op
from gssc.ops.tiles import Tiles
from gssc.ops.triton_support import multiprocessors, power_of_two, wants_exact

MAX_FREQUENCIES = 256
STATE = 4096  # numbers of a state that one program holds in registers
REDUCED = 8192  # numbers of partial sums that one program adds at a time


@dataclass(frozen=True)
class Tuning:
    """How the work of one direction is cut; measured on an H200 (docs/kernels.md)."""

    rows: int = 64  # nodes of a block, the unit of a product; fewer where K is large
    warps: int = 4  # twice as many where the state is large
    stages: int = 3
    tiles: int = 4  # tiles per processor in pass 1, if the graph is large enough
    least: int = 128  # nodes of a tile at least
    # How float32 is multiplied: "tf32x3", three tf32 products on the matrix units, good to about 1e-6. Triton also has
    # "ieee", on the ordinary units: it holds whole blocks in registers, spills them, and compiles for minutes.
    exact: str = "tf32x3"
    once: int = 1024  # up to so many nodes in all, every graph is one tile and both passes are one launch


FORWARD = Tuning()
BACKWARD = Tuning(rows=32, tiles=8)  # it holds twice as many blocks in registers


@lru_cache(maxsize=256)
class _Plan(Tiles):
    """Tiles, blocks of frequencies and channels, and what all launches have in common."""

    def __init__(self, tuning: Tuning, nodes: int, graphs: int, k: int, c: int, processors: int, exact: bool) -> None:
        share = -(-nodes // (tuning.tiles * processors))
        tile = max(tuning.least, -(-share // tuning.rows) * tuning.rows)
        super().__init__(nodes, graphs, tuning.once if nodes <= tuning.once else tile)
        block_k = power_of_two(k, 32)
        self.block_c = min(power_of_two(c, 16), STATE // block_k, 128)
        self.blocks = -(-c // self.block_c)
        wide = block_k > 64  # a block of P must fit into shared memory
        warps = tuning.warps * (2 if block_k * self.block_c > STATE // 2 else 1)
        blocks = {"BLOCK_N": 16 if wide else tuning.rows, "BLOCK_K": block_k, "BLOCK_C": self.block_c}
        effort = {"num_warps": warps, "num_stages": 1 if wide else tuning.stages}
        self.constants = {"K": k, "C": c, "PRECISION": tuning.exact if exact else "tf32"} | blocks | effort

    def launch(self, kernel: Any, *tensors: Any, **flags: Any) -> None:
        """One pass over the tiles."""
        launch(kernel, (self.count, self.blocks), *tensors, numbers=self.numbers, **flags, **self.constants)


def _side_by_side(*features: Tensor | None) -> tuple[int, list[Tensor | None]]:
    """How many tensors [N, C] stand side by side in rows of these, the same for all, and these; 1 if they are apart."""
    strides = {(tensor.shape[1], *tensor.stride()) for tensor in features if tensor is not None}
    if len(strides) == 1:
        c, far, near = strides.pop()
        if near == 1 and far >= c > 0 and far % c == 0:
            return far // c, list(features)
    return 1, contiguous(*features)


def _flags(gains: Tensor | None, self_gains: Tensor | None, parts: int) -> dict[str, int]:
    shared, self_shared = (gain is not None and gain.shape[2] == 1 for gain in (gains, self_gains))
    return {"SHARED": shared, "SELF_SHARED": self_shared, "PARTS": parts}


@op("gssc::conv_triton", fake=lambda *inputs: collapsed.empty_results(inputs, torch.float32))
def conv_triton(
    x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, gains: Tensor | None, self_gains: Tensor | None,
    bias: Tensor | None, ptr: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """H [N, C] and U [G, K, C] in float32 (empty without the global term)."""
    out, state = collapsed.empty_results((x_o, x_s, vectors, gains, self_gains, bias, ptr), torch.float32)
    (nodes, c), k, graphs = out.shape, vectors.shape[1], ptr.shape[0] - 1
    if nodes == 0 or k == 0 or c == 0:
        return (out.zero_() if bias is None else out.copy_(bias.expand_as(out))), state.zero_()
    kernels = kernels_of("conv")
    plan = _Plan(FORWARD, nodes, graphs, k, c, multiprocessors(out.device), wants_exact(x_o, x_s, vectors))
    parts, (x_o, x_s) = _side_by_side(x_o, x_s)
    vectors, gains, self_gains, ptr = contiguous(vectors, gains, self_gains, ptr)
    flags = _flags(gains, self_gains, parts)
    if x_o is not None:
        partial = plan.partial(state)
        inputs = (x_o, x_s, vectors, gains, self_gains, bias, ptr, partial, state, out)
        plan.launch(kernels.forward_tiles, *inputs, **plan.kinds, **flags)
        if partial is None:
            return out, state
        plan.reduce(partial, ptr, state, numbers=REDUCED)
    tensors = (x_s, vectors, gains, self_gains, bias, ptr, state, out, None)
    plan.launch(kernels.apply_tiles, *tensors, EVERY=x_o is None, BACKWARD=False, **flags)
    return out, state


@op("gssc::conv_triton_backward", fake=collapsed.empty_gradients)
def conv_triton_backward(grad: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂X_o, ∂X_s, ∂A and ∂A_s; empty for a term that is not there. Not differentiable."""
    x_s, *others = saved
    return _gradients(grad, (*contiguous(x_s), *others))  # results of an op must not share their memory


def _gradients(grad: Tensor, saved: Saved, columns: Sequence[Tensor] = ()) -> Gradients:
    """The same; ∂X_o and ∂X_s go into ``columns`` of one tensor, where X_s is such a column."""
    tensors: Any = saved
    x_s, vectors, gains, self_gains, ptr, state = tensors
    (nodes, k), graphs, c = vectors.shape, ptr.shape[0] - 1, grad.shape[1]
    if nodes == 0 or k == 0 or c == 0:
        d_o, d_s, *d_both = collapsed.empty_gradients(grad, saved)
        return tuple(empty.zero_() for empty in (*(columns or (d_o, d_s)), *d_both))
    kernels = kernels_of("conv")
    plan = _Plan(BACKWARD, nodes, graphs, k, c, multiprocessors(grad.device), wants_exact(grad, x_s, vectors))
    parts = 2 if columns else 1
    if columns:
        d_o, d_s = columns
    else:
        (x_s,) = contiguous(x_s)
        d_o, d_s = (grad.new_empty(0 if like is None else grad.shape) for like in (gains, x_s))
    flags = _flags(gains, self_gains, parts)
    # Of gains that channels share, one sum per block of channels.
    d_gains, d_self = (
        state.new_empty(0 if gain is None else (graphs, k, plan.blocks if gain.shape[2] == 1 else c))
        for gain in (gains, self_gains)
    )
    buffers = (d_o, d_s, d_gains, d_self)
    grad, vectors, gains, self_gains, ptr, state = contiguous(grad, vectors, gains, self_gains, ptr, state)
    partial = None if gains is None else plan.partial(state)
    self_partial = None if self_gains is None else plan.partial(d_self)
    inputs = (grad, x_s, vectors, gains, self_gains, ptr, state, partial, self_partial, *buffers)
    plan.launch(kernels.backward_tiles, *inputs, **plan.kinds, **flags)
    answer = None
    if partial is not None:
        answer = torch.empty_like(state)
        extra = {"state": state, "product": d_gains}
        plan.reduce(partial, ptr, answer, **extra, widest=plan.block_c, numbers=REDUCED)
    if self_partial is not None:
        plan.reduce(self_partial, ptr, d_self, numbers=REDUCED)
    if plan.kinds["LARGE_GRAPHS"]:
        outer = (grad, vectors, gains, self_gains, None, ptr, answer, d_o, d_s)
        plan.launch(kernels.apply_tiles, *outer, EVERY=False, BACKWARD=True, **flags)
    return d_o, d_s, _over_blocks(d_gains, gains), _over_blocks(d_self, self_gains)


def _over_blocks(sums: Tensor, gains: Tensor | None) -> Tensor:
    return sums if gains is None or sums.shape[2] == gains.shape[2] else sums.sum(2, keepdim=True)


def _backward(ctx: Any, grad: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    return collapsed.backward(ctx, grad, grad_state, conv_triton_backward if is_traced(grad) else _gradients)


conv_triton.register_autograd(_backward, setup_context=collapsed.setup)


class ConvOfRows:
    """The same of X_o and X_s side by side in one tensor [N, 2C], for `gssc.ops.linears.op_of_linears`."""

    @staticmethod
    def function(rows: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        return conv_triton.function(*rows.chunk(2, dim=1), *others)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, vectors, gains, self_gains, bias, ptr, state = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if needs[1] or torch.is_grad_enabled():

            def composed(rows: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, bias: Any) -> Tensor:
                x_o, x_s = rows.chunk(2, dim=1)
                h = collapsed.composed(ptr, to_state(vectors, x_o, ptr), x_s, vectors, gains, self_gains)
                return h if bias is None else h + bias

            return composed_gradients(composed, (rows, vectors, gains, self_gains, bias), needs, grad)
        saved = (rows.chunk(2, dim=1)[1], vectors, gains, self_gains, ptr, state)
        d_rows = grad.new_empty(rows.shape)
        *_, d_gains, d_self = _gradients(grad, saved, d_rows.chunk(2, dim=1))
        d_bias = column_sums(grad, bias.dtype) if needs[4] else None
        return d_rows.to(rows.dtype), None, d_gains.to(gains.dtype), d_self.to(self_gains.dtype), d_bias, None
