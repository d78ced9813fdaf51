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

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from gssc.ops.conv import torch as collapsed
from gssc.ops.launch import launch
from gssc.ops.linears import empty_columns
from gssc.ops.op import is_traced, op
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

    @cached_property
    def block_c(self) -> int:
        return min(power_of_two(self.c, 16), STATE // self.block_k, 128)

    @cached_property
    def block_k(self) -> int:
        return power_of_two(self.k, 32)

    @cached_property
    def blocks(self) -> int:
        return -(-self.c // self.block_c)

    @cached_property
    def tiles(self) -> int:
        return self.nodes // self.chunk + self.graphs

    @cached_property
    def large_graphs(self) -> bool:
        """Whether a graph may have more than one tile."""
        return self.nodes > self.chunk

    @cached_property
    def small_graphs(self) -> bool:
        """Whether a graph may have one tile only."""
        return self.graphs > 1 or not self.large_graphs

    @cached_property
    def sizes(self) -> dict[str, bool]:
        """Which kinds of graphs pass 1 may meet: code for the others is left out of it."""
        return {"SMALL_GRAPHS": self.small_graphs, "LARGE_GRAPHS": self.large_graphs}

    @cached_property
    def constants(self) -> dict[str, Any]:
        """What all launches have in common."""
        wide = self.block_k > 64  # a block of P must fit into shared memory
        warps = self.tuning.warps * (2 if self.block_k * self.block_c > STATE // 2 else 1)
        blocks = {"BLOCK_N": 16 if wide else self.tuning.rows, "BLOCK_K": self.block_k, "BLOCK_C": self.block_c}
        effort = {"num_warps": warps, "num_stages": 1 if wide else self.tuning.stages}
        return {"K": self.k, "C": self.c, "PRECISION": self.precision} | blocks | effort

    def launch(self, kernel: Any, *arguments: Any, **flags: Any) -> None:
        """One pass over the tiles; ``limit`` is an argument, other ``flags`` are constants."""
        numbers = (self.nodes, self.graphs, search_steps(self.graphs), self.chunk)
        limit = (flags.pop("limit"),) if "limit" in flags else ()
        launch(kernel, (self.tiles, self.blocks), *arguments, *numbers, *limit, **flags, **self.constants)

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
        launch(
            kernels.reduce, (self.graphs, programs, -(-c // block_c)), partial, ptr, state, total, product, self.chunk,
            K=k, C=c, ROWS=max(8192 // block_c, 1), BLOCK_C=block_c,
            MULTIPLY=product is not None, SHARED=shared, num_warps=8,
        )  # fmt: skip


@lru_cache(maxsize=256)
def _plan(tuning: Tuning, nodes: int, graphs: int, k: int, channels: int, processors: int, exact: bool) -> _Plan:
    if nodes <= tuning.once:
        chunk = tuning.once
    else:
        share = -(-nodes // (tuning.tiles * processors))
        chunk = max(tuning.least, -(-share // tuning.rows) * tuning.rows)
    return _Plan(tuning, nodes, graphs, k, channels, chunk, tuning.exact if exact else "tf32")


def _side_by_side(*features: Tensor | None) -> tuple[int, list[Tensor | None]]:
    """How many tensors [N, C] stand side by side in rows of these, the same for all, and these; 1 if they are apart."""
    strides = {(tensor.shape[1], *tensor.stride()) for tensor in features if tensor is not None}
    if len(strides) == 1:
        c, far, near = strides.pop()
        if near == 1 and far >= c > 0 and far % c == 0:
            return far // c, list(features)
    return 1, [None if tensor is None else tensor.contiguous() for tensor in features]


@op("gssc::conv_triton")
def conv_triton(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    bias: Tensor | None,
    ptr: Tensor,
) -> tuple[Tensor, Tensor]:
    """H [N, C] and U [G, K, C] in float32 (empty without the global term)."""
    like = x_o if x_o is not None else x_s
    assert like is not None
    (nodes, k), graphs, c = vectors.shape, ptr.shape[0] - 1, like.shape[1]
    plan = _plan(FORWARD, nodes, graphs, k, c, multiprocessors(like.device), wants_exact(x_o, x_s, vectors))
    out = like.new_empty((nodes, c), dtype=collapsed.output_dtype(x_o, x_s, bias))
    state = like.new_empty((0,) if x_o is None else (graphs, k, c), dtype=torch.float32)
    if nodes == 0 or k == 0 or c == 0:
        return (out.zero_() if bias is None else out.copy_(bias.expand_as(out))), state.zero_()
    from gssc.ops.conv import kernels

    parts, (x_o, x_s) = _side_by_side(x_o, x_s)
    vectors, ptr = vectors.contiguous(), ptr.contiguous()
    gains = None if gains is None else gains.contiguous()
    self_gains = None if self_gains is None else self_gains.contiguous()
    flags = {
        "SHARED": gains is not None and gains.shape[2] == 1,
        "SELF_SHARED": self_gains is not None and self_gains.shape[2] == 1,
        "HAS_SELF": x_s is not None,
        "HAS_BIAS": bias is not None,
        "PARTS": parts,
    }
    if x_o is not None:
        partial = state.new_empty((plan.tiles, k, c)) if plan.large_graphs else None
        tensors = (x_o, x_s, vectors, gains, self_gains, bias, ptr, partial, state, out)
        plan.launch(kernels.forward_tiles, *tensors, **plan.sizes, **flags)
        if partial is None:
            return out, state
        plan.reduce(partial, ptr, state)
    inputs = (x_s, vectors, gains, self_gains, bias, ptr, state, out)
    limit = plan.chunk if x_o is not None else -1
    plan.launch(kernels.forward_apply, *inputs, limit=limit, HAS_GLOBAL=x_o is not None, **flags)
    return out, state


conv_triton.register_fake(lambda *inputs: collapsed.empty_results(inputs, torch.float32))


@op("gssc::conv_triton_backward")
def conv_triton_backward(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂X_o, ∂X_s, ∂A and ∂A_s; empty for a term that is not there. Not differentiable."""
    x_s = None if x_s is None else x_s.contiguous()  # results of an op must not share their memory
    return _gradients(grad, x_s, vectors, gains, self_gains, ptr, state)


def _gradients(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> collapsed.Gradients:
    """The same, with ∂X_o and ∂X_s side by side in one tensor where X_s stands so with another."""
    (nodes, k), graphs, c = vectors.shape, ptr.shape[0] - 1, grad.shape[1]
    plan = _plan(BACKWARD, nodes, graphs, k, c, multiprocessors(grad.device), wants_exact(grad, x_s, vectors))
    parts, (x_s,) = _side_by_side(x_s)
    if parts == 2:
        d_o, d_s = empty_columns(grad, 2)
    else:
        parts, x_s = 1, None if x_s is None else x_s.contiguous()
        d_o = grad.new_empty(grad.shape if gains is not None else (0,))
        d_s = grad.new_empty(grad.shape if x_s is not None else (0,))
    d_gains, d_self = _gain_buffer(gains, plan, state), _gain_buffer(self_gains, plan, state)
    if nodes == 0 or k == 0 or c == 0:
        for buffer in (d_o, d_s, d_gains, d_self):
            buffer.zero_()
    else:
        buffers = (d_o, d_s, d_gains, d_self)
        _launch_backward(plan, parts, grad, x_s, vectors, gains, self_gains, ptr, state, *buffers)
    return d_o, d_s, _gain_gradient(d_gains, gains), _gain_gradient(d_self, self_gains)


def _gain_buffer(gains: Tensor | None, plan: _Plan, state: Tensor) -> Tensor:
    """For ∂A in float32; of gains that channels share, one sum per block of channels."""
    if gains is None:
        return state.new_empty(0)
    return state.new_empty(plan.graphs, plan.k, plan.blocks if gains.shape[2] == 1 else plan.c)


def _gain_gradient(buffer: Tensor, gains: Tensor | None) -> Tensor:
    if gains is None:
        return buffer
    if gains.shape[2] == 1 and buffer.shape[2] != 1:
        buffer = buffer.sum(2, keepdim=True)
    return buffer.to(gains.dtype)


def _launch_backward(
    plan: _Plan,
    parts: int,
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
    d_o: Tensor,
    d_s: Tensor,
    d_gains: Tensor,
    d_self: Tensor,
) -> None:
    from gssc.ops.conv import kernels

    grad, vectors, ptr, state = grad.contiguous(), vectors.contiguous(), ptr.contiguous(), state.contiguous()
    gains = None if gains is None else gains.contiguous()
    self_gains = None if self_gains is None else self_gains.contiguous()
    flags = {
        "SHARED": gains is not None and gains.shape[2] == 1,
        "SELF_SHARED": self_gains is not None and self_gains.shape[2] == 1,
        "HAS_GLOBAL": gains is not None,
        "HAS_SELF": x_s is not None,
        "PARTS": parts,
    }
    partial = self_partial = None
    if plan.large_graphs:
        partial = None if gains is None else state.new_empty((plan.tiles, plan.k, plan.c))
        self_partial = None if self_gains is None else state.new_empty((plan.tiles, *d_self.shape[1:]))
    inputs = (grad, x_s, vectors, gains, self_gains, ptr, state, partial, self_partial, d_o, d_s, d_gains, d_self)
    plan.launch(kernels.backward_tiles, *inputs, **plan.sizes, **flags)
    if not plan.large_graphs:
        return
    answer = None
    if partial is not None:
        answer = torch.empty_like(state)
        plan.reduce(partial, ptr, answer, state, d_gains)
    if self_partial is not None:
        plan.reduce(self_partial, ptr, d_self)
    outer = (grad, vectors, gains, self_gains, ptr, answer, d_o, d_s)
    plan.launch(kernels.backward_apply, *outer, limit=plan.chunk, **flags)


@conv_triton_backward.register_fake
def _(grad: Tensor, x_s: Tensor | None, *rest: Any) -> collapsed.Gradients:
    _, gains, self_gains, _, state = rest
    d_o, d_s = collapsed.empty_gradients(grad, x_s, gains, self_gains)[:2]
    d_a = state.new_empty(0) if gains is None else gains.new_empty(gains.shape)
    return d_o, d_s, d_a, state.new_empty(0) if self_gains is None else self_gains.new_empty(self_gains.shape)


def _backward(ctx: Any, grad: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    return collapsed.backward(ctx, grad, grad_state, conv_triton_backward if is_traced(grad) else _gradients)


conv_triton.register_autograd(_backward, setup_context=collapsed.setup)
