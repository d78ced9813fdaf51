"""The convolution in Triton: two passes over the nodes forward, two backward, and nothing of size n in between.

    forward     1  U = PᵀX_o                                       reads P, X_o
                2  H = P (A ⊙ U) + ((P⊙P) A_s) ⊙ X_s               reads P, X_s, writes H
    backward    1  V = PᵀG,  ∂A_s = (P⊙P)ᵀ(G ⊙ X_s),  ∂A = U ⊙ V   reads P, G, X_s
                2  ∂X_o = P (A ⊙ V),  ∂X_s = ((P⊙P) A_s) ⊙ G       reads P, G, writes ∂X_o, ∂X_s

That is n(3C + 2K) numbers forward and n(5C + 2K) backward, the least that two dependent passes can move. Pass 1 leaves
one partial sum per tile of nodes, added in a fixed order by a third, small kernel: no atomics, so results repeat bit by
bit. Graphs that fit into one tile take both passes in one program.

The gradient of P, and derivatives of the backward pass, are those of ``eager.py``.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.ops.conv import torch as eager
from gssc.ops.triton_support import multiprocessors, power_of_two, search_steps, wants_exact

MAX_FREQUENCIES = 256
STATE = 4096  # numbers of a state that one program holds in registers


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


@dataclass(frozen=True)
class _Plan:
    """Sizes of one launch: numbers only, made without a look at ``ptr``."""

    tuning: Tuning
    nodes: int
    graphs: int
    k: int
    c: int
    chunk: int
    precision: str

    @property
    def block_c(self) -> int:
        return min(power_of_two(self.c, 16), STATE // self.block_k, 128)

    @property
    def block_k(self) -> int:
        return power_of_two(self.k, 32)

    @property
    def blocks(self) -> int:
        return -(-self.c // self.block_c)

    @property
    def tiles(self) -> int:
        return self.nodes // self.chunk + self.graphs

    @property
    def large_graphs(self) -> bool:
        """Whether a graph may have more than one tile."""
        return self.nodes > self.chunk

    @property
    def small_graphs(self) -> bool:
        """Whether a graph may have one tile only."""
        return self.graphs > 1 or not self.large_graphs

    @property
    def sizes(self) -> dict[str, bool]:
        """Which kinds of graphs pass 1 may meet: code for the others is left out of it."""
        return {"SMALL_GRAPHS": self.small_graphs, "LARGE_GRAPHS": self.large_graphs}

    def launch(self, kernel: Any, *arguments: Any, **flags: Any) -> None:
        numbers = (self.nodes, self.graphs, search_steps(self.graphs), self.chunk)
        wide = self.block_k > 64  # a block of P must fit into shared memory
        warps = self.tuning.warps * (2 if self.block_k * self.block_c > STATE // 2 else 1)
        blocks = {"BLOCK_N": 16 if wide else self.tuning.rows, "BLOCK_K": self.block_k, "BLOCK_C": self.block_c}
        shape = {"K": self.k, "C": self.c, "PRECISION": self.precision}
        effort = {"num_warps": warps, "num_stages": 1 if wide else self.tuning.stages}
        limit = (flags.pop("limit"),) if "limit" in flags else ()
        kernel[(self.tiles, self.blocks)](*arguments, *numbers, *limit, **shape, **blocks, **flags, **effort)

    def reduce(
        self, partial: Tensor, ptr: Tensor, total: Tensor, state: Tensor | None = None, product: Tensor | None = None
    ) -> None:
        """Add partial states [tiles, K, C'] of large graphs into ``total``; ``product`` takes state ⊙ total."""
        from gssc.ops.conv import kernels

        k, c = partial.shape[1:]
        if product is None:  # nothing depends on which column is which channel
            k, c = (1, k * c) if k * c <= 128 else (k, c)
        block_c = min(power_of_two(c, 16), self.block_c if product is not None else 128)
        shared = product is not None and product.shape[2] != c
        programs = max(1, min(k, 4096 // self.graphs))
        kernels.reduce[(self.graphs, programs, -(-c // block_c))](
            partial, ptr, state, total, product, self.chunk,
            K=k, C=c, ROWS=max(8192 // block_c, 1), BLOCK_C=block_c,
            MULTIPLY=product is not None, SHARED=shared, num_warps=8,
        )  # fmt: skip


def _plan(tuning: Tuning, vectors: Tensor, channels: int, ptr: Tensor, exact: bool) -> _Plan:
    nodes, k = vectors.shape
    if nodes <= tuning.once:
        chunk = tuning.once
    else:
        share = -(-nodes // (tuning.tiles * multiprocessors(vectors.device)))
        chunk = max(tuning.least, -(-share // tuning.rows) * tuning.rows)
    return _Plan(tuning, nodes, ptr.shape[0] - 1, k, channels, chunk, tuning.exact if exact else "tf32")


def _gain_buffer(gains: Tensor, plan: _Plan) -> Tensor:
    width = plan.blocks if gains.shape[2] == 1 else plan.c
    return gains.new_empty(plan.graphs, plan.k, width, dtype=torch.float32)


def _gain_gradient(buffer: Tensor, gains: Tensor) -> Tensor:
    if gains.shape[2] == 1 and buffer.shape[2] != 1:
        buffer = buffer.sum(2, keepdim=True)
    return buffer.to(gains.dtype)


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if t is None else t.contiguous() for t in tensors]


@torch.library.custom_op("gssc::conv_fused", mutates_args=())
def conv_fused(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> tuple[Tensor, Tensor]:
    """H [N, C] and U [G, K, C] in float32 (empty without the global term)."""
    x_o, x_s = _contiguous(x_o, x_s)
    return forward(x_o, x_s, vectors, gains, self_gains, ptr, eager._output_dtype(x_o, x_s))


def forward(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    dtype: torch.dtype,
    bias: Tensor | None = None,
    parts: int = 1,
) -> tuple[Tensor, Tensor]:
    """The launches: H + ``bias`` in ``dtype``, and U. Rows of X_o and X_s are ``parts`` × C numbers apart."""
    like = x_o if x_o is not None else x_s
    assert like is not None
    plan = _plan(FORWARD, vectors, like.shape[1], ptr, wants_exact(x_o, x_s, vectors))
    out = like.new_empty(like.shape, dtype=dtype)
    state = like.new_empty((0,) if x_o is None else (plan.graphs, plan.k, plan.c), dtype=torch.float32)
    if plan.nodes == 0 or plan.k == 0 or plan.c == 0:
        return (out.zero_() if bias is None else out.copy_(bias.expand_as(out))), state.zero_()
    from gssc.ops.conv import kernels

    vectors, gains, self_gains = _contiguous(vectors, gains, self_gains)  # type: ignore[assignment]
    ptr = ptr.contiguous()
    flags = {
        "SHARED": gains is not None and gains.shape[2] == 1,
        "SELF_SHARED": self_gains is not None and self_gains.shape[2] == 1,
        "HAS_SELF": x_s is not None,
        "HAS_BIAS": bias is not None,
    }
    if x_o is not None:
        partial = state.new_empty((plan.tiles, plan.k, plan.c)) if plan.large_graphs else None
        tensors = (x_o, x_s, vectors, gains, self_gains, bias, ptr, partial, state, out)
        plan.launch(kernels.forward_tiles, *tensors, **plan.sizes, **flags, PARTS=parts)
        if partial is None:
            return out, state
        plan.reduce(partial, ptr, state)
    inputs = (x_s, vectors, gains, self_gains, bias, ptr, state, out)
    limit = plan.chunk if x_o is not None else -1
    plan.launch(kernels.forward_apply, *inputs, limit=limit, HAS_GLOBAL=x_o is not None, **flags, PARTS=parts)
    return out, state


@conv_fused.register_fake
def _(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> tuple[Tensor, Tensor]:
    like = x_o if x_o is not None else x_s
    assert like is not None
    shape = (0,) if x_o is None else (ptr.shape[0] - 1, vectors.shape[1], x_o.shape[1])
    out = like.new_empty(like.shape, dtype=eager._output_dtype(x_o, x_s))
    return out, like.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op("gssc::conv_fused_backward", mutates_args=())
def conv_fused_backward(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> list[Tensor]:
    """∂X_o, ∂A and ∂X_s, ∂A_s: the first two with the global term, the last two with the self term."""
    d_o, d_s = (torch.empty_like(grad, memory_format=torch.contiguous_format) if present else None
                for present in (gains is not None, x_s is not None))  # fmt: skip
    (x_s,) = _contiguous(x_s)
    d_a, d_as = backward(grad, x_s, vectors, gains, self_gains, ptr, state, d_o, d_s)
    return [found for found in (d_o, d_a, d_s, d_as) if found is not None]


def backward(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
    d_o: Tensor | None,
    d_s: Tensor | None,
    parts: int = 1,
) -> tuple[Tensor | None, Tensor | None]:
    """The launches: ∂A and ∂A_s; ∂X_o and ∂X_s are written, in rows that, like those of X_s, are parts × C apart."""
    plan = _plan(BACKWARD, vectors, grad.shape[1], ptr, wants_exact(grad, x_s, vectors))
    d_gains = None if gains is None else _gain_buffer(gains, plan)
    d_self = None if self_gains is None else _gain_buffer(self_gains, plan)
    if plan.nodes == 0 or plan.k == 0 or plan.c == 0:
        for buffer in (d_o, d_s, d_gains, d_self):
            if buffer is not None:
                buffer.zero_()
    else:
        _launch_backward(plan, grad, x_s, vectors, gains, self_gains, ptr, state, d_o, d_s, d_gains, d_self, parts)
    d_a = None if d_gains is None or gains is None else _gain_gradient(d_gains, gains)
    d_as = None if d_self is None or self_gains is None else _gain_gradient(d_self, self_gains)
    return d_a, d_as


def _launch_backward(
    plan: _Plan,
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
    d_o: Tensor | None,
    d_s: Tensor | None,
    d_gains: Tensor | None,
    d_self: Tensor | None,
    parts: int,
) -> None:
    from gssc.ops.conv import kernels

    grad, vectors, gains, self_gains, ptr, state = _contiguous(  # type: ignore[assignment]
        grad, vectors, gains, self_gains, ptr, state
    )
    flags = {
        "SHARED": gains is not None and gains.shape[2] == 1,
        "SELF_SHARED": self_gains is not None and self_gains.shape[2] == 1,
        "HAS_GLOBAL": gains is not None,
        "HAS_SELF": x_s is not None,
        "PARTS": parts,
    }
    partial = self_partial = None
    if plan.large_graphs:
        if d_gains is not None:
            partial = state.new_empty((plan.tiles, plan.k, plan.c))
        if d_self is not None:
            self_partial = state.new_empty((plan.tiles, *d_self.shape[1:]))
    inputs = (grad, x_s, vectors, gains, self_gains, ptr, state, partial, self_partial, d_o, d_s, d_gains, d_self)
    plan.launch(kernels.backward_tiles, *inputs, **plan.sizes, **flags)
    if not plan.large_graphs:
        return
    answer = None
    if partial is not None and d_gains is not None:
        answer = torch.empty_like(state)
        plan.reduce(partial, ptr, answer, state, d_gains)
    if self_partial is not None and d_self is not None:
        plan.reduce(self_partial, ptr, d_self)
    outer = (grad, vectors, gains, self_gains, ptr, answer, d_o, d_s)
    plan.launch(kernels.backward_apply, *outer, limit=plan.chunk, **flags)


@conv_fused_backward.register_fake
def _(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> list[Tensor]:
    found = []
    if gains is not None:
        found += [grad.new_empty(grad.shape), gains.new_empty(gains.shape)]
    if x_s is not None and self_gains is not None:
        found += [grad.new_empty(grad.shape), self_gains.new_empty(self_gains.shape)]
    return found


def _backward(ctx: Any, grad: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    _, x_s, vectors, gains, self_gains, ptr, state = ctx.saved_tensors
    # With grad mode on, somebody will differentiate the result: that is what the eager formulas are made of.
    if grad is None or grad_state is not None or ctx.needs_input_grad[2] or torch.is_grad_enabled():
        return eager.backward(ctx, grad, grad_state)
    found = conv_fused_backward(grad, x_s, vectors, gains, self_gains, ptr, state)
    d_o = d_s = d_a = d_as = None
    if gains is not None:
        d_o, d_a, *found = found
        d_o = d_o.to(ctx.dtype_o)
    if x_s is not None:
        d_s, d_as = found
        d_s = d_s.to(x_s.dtype)
    return d_o, d_s, None, d_a, d_as, None


conv_fused.register_autograd(_backward, setup_context=eager.setup)


def gssc_conv(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> Tensor:
    """H = P (A ⊙ PᵀX_o) + ((P⊙P) A_s) ⊙ X_s for every graph of the batch, [N, C]."""
    if vectors.shape[1] > MAX_FREQUENCIES:
        fail("vectors", f"at most {MAX_FREQUENCIES} frequencies for backend='fused'", vectors.shape[1])
    out: Tensor = conv_fused(x_o, x_s, vectors, gains, self_gains, ptr)[0]
    return out
