"""Products with states of graphs, for vectors and for their pairs, and sums over graphs in Triton.

    to_state:    U_g = P_gᵀ X_g        [N, K], [N, C]    -> [G, S, C]
    from_state:  Y_g = P_g S_g         [N, K], [G, S, C] -> [N, C]

S = K or, with ``pairs``, K²: then P stands for P⊗P, [N, K²], which is never stored. Results are float32, and repeat bit
by bit: graphs of several tiles are summed in two stages. Derivatives are again these two; those in P of the products
with pairs store [N, K²], and are not what training needs. Nothing looks at the sizes of graphs on the host.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import launch
from gssc.ops.op import op
from gssc.ops.triton_support import multiprocessors, power_of_two, search_steps, wants_exact

ROWS, BLOCK_S, STAGES = 32, 32, 2
TILES, LEAST = 4, 128  # tiles per processor, and nodes of one at least


@dataclass(frozen=True)
class _Plan:
    """Sizes of one launch: numbers only."""

    nodes: int
    graphs: int
    k: int
    s: int
    c: int
    chunk: int
    exact: bool

    @property
    def tiles(self) -> int:
        return self.nodes // self.chunk + self.graphs

    @property
    def block_c(self) -> int:
        return min(power_of_two(self.c, 16), 64)

    def launch(self, kernel: Any, grid: tuple[int, ...], *tensors: Tensor | None, **flags: Any) -> None:
        numbers = (self.nodes, self.graphs, search_steps(self.graphs), self.chunk)
        launch(
            kernel, grid, *tensors, *numbers,
            K=self.k, S=self.s, C=self.c, BLOCK_N=ROWS, BLOCK_S=BLOCK_S, BLOCK_C=self.block_c,
            PAIRS=self.s != self.k, PRECISION="tf32x3" if self.exact else "tf32", num_warps=4, num_stages=STAGES,
            **flags,
        )  # fmt: skip


def _tile_size(nodes: int, device: torch.device) -> int:
    """Nodes of a tile."""
    share = -(-nodes // (TILES * multiprocessors(device)))
    return max(LEAST, -(-share // ROWS) * ROWS)


def _plan(vectors: Tensor, c: int, ptr: Tensor, pairs: bool, exact: bool) -> _Plan:
    nodes, k = vectors.shape
    chunk = _tile_size(nodes, vectors.device)
    # One vector is its own square: K = 1 makes no difference between the two kinds but in what is multiplied.
    return _Plan(nodes, ptr.shape[0] - 1, k, k * k if pairs else k, c, chunk, exact)


@op("gssc::to_state_triton")
def to_state_triton(vectors: Tensor, x: Tensor, ptr: Tensor, pairs: bool) -> Tensor:
    """U [G, S, C] in float32."""
    if pairs and vectors.shape[1] == 1:
        vectors, pairs = vectors.float().square(), False
    plan = _plan(vectors, x.shape[1], ptr, pairs, wants_exact(vectors, x))
    state = x.new_empty((plan.graphs, plan.s, plan.c), dtype=torch.float32)
    if plan.nodes == 0 or state.numel() == 0:
        return state.zero_()
    from gssc.ops.graph_sums import kernels

    several = plan.nodes > plan.chunk
    partial = state.new_empty((plan.tiles, plan.s, plan.c)) if several else None
    grid = (plan.tiles, -(-plan.s // BLOCK_S), -(-plan.c // plan.block_c))
    tensors = (vectors.contiguous(), x.contiguous(), ptr.contiguous(), partial, state)
    sizes = {"SMALL_GRAPHS": plan.graphs > 1 or not several, "LARGE_GRAPHS": several}
    plan.launch(kernels.to_state, grid, *tensors, **sizes)
    if partial is not None:
        _add_tiles(partial, tensors[2], state, plan.chunk)
    return state


def _add_tiles(partial: Tensor, ptr: Tensor, total: Tensor, chunk: int) -> None:
    """Partial sums [tiles, S, C] of graphs with more than one tile, added into ``total`` [G, S, C] in their order."""
    from gssc.ops.conv.kernels import reduce

    graphs, s, c = total.shape
    block_c = min(power_of_two(c, 16), 128)
    programs = max(1, min(s, 4096 // graphs))
    launch(
        reduce, (graphs, programs, -(-c // block_c)), partial, ptr, None, total, None, chunk,
        K=s, C=c, ROWS=max(4096 // block_c, 1), BLOCK_C=block_c, MULTIPLY=False, SHARED=False, num_warps=8,
    )  # fmt: skip


@op("gssc::from_state_triton")
def from_state_triton(vectors: Tensor, state: Tensor, ptr: Tensor, pairs: bool) -> Tensor:
    """Y [N, C] in float32."""
    if pairs and vectors.shape[1] == 1:
        vectors, pairs = vectors.float().square(), False
    plan = _plan(vectors, state.shape[2], ptr, pairs, wants_exact(vectors, state))
    out = state.new_empty((plan.nodes, plan.c), dtype=torch.float32)
    if out.numel() == 0 or plan.s == 0:
        return out.zero_()
    from gssc.ops.graph_sums import kernels

    tensors = (vectors.contiguous(), state.contiguous(), ptr.contiguous(), out)
    plan.launch(kernels.from_state, (plan.tiles, -(-plan.c // plan.block_c)), *tensors)
    return out


@to_state_triton.register_fake
def _(vectors: Tensor, x: Tensor, ptr: Tensor, pairs: bool) -> Tensor:
    k = vectors.shape[1]
    return x.new_empty((ptr.shape[0] - 1, k * k if pairs else k, x.shape[1]), dtype=torch.float32)


@from_state_triton.register_fake
def _(vectors: Tensor, state: Tensor, ptr: Tensor, pairs: bool) -> Tensor:
    return state.new_empty((vectors.shape[0], state.shape[2]), dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.pairs = inputs
    ctx.save_for_backward(*tensors)


def _to_state_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    vectors, x, ptr = ctx.saved_tensors
    need_vectors, need_x, *_ = ctx.needs_input_grad
    d_vectors = _vector_gradient(vectors, x, grad, ptr, ctx.pairs) if need_vectors else None
    return d_vectors, from_state_triton(vectors, grad, ptr, ctx.pairs).to(x.dtype) if need_x else None, None, None


def _from_state_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    vectors, state, ptr = ctx.saved_tensors
    need_vectors, need_state, *_ = ctx.needs_input_grad
    d_vectors = _vector_gradient(vectors, grad, state, ptr, ctx.pairs) if need_vectors else None
    d_state = to_state_triton(vectors, grad, ptr, ctx.pairs).to(state.dtype) if need_state else None
    return d_vectors, d_state, None, None


def _vector_gradient(vectors: Tensor, rows: Tensor, state: Tensor, ptr: Tensor, pairs: bool) -> Tensor:
    """∂P_vj = Σ_c rows_vc state_jc; with pairs Σ_kc rows_vc (state_jkc + state_kjc) P_vk."""
    if not pairs:
        return from_state_triton(rows, state.transpose(1, 2), ptr, False).to(vectors.dtype)
    k = vectors.shape[1]
    square = state.unflatten(1, (k, k))
    both = (square + square.transpose(1, 2)).flatten(1, 2)
    spread = from_state_triton(rows, both.transpose(1, 2), ptr, False).unflatten(1, (k, k))
    return (spread * vectors.unsqueeze(1)).sum(2).to(vectors.dtype)


to_state_triton.register_autograd(_to_state_backward, setup_context=_setup)
from_state_triton.register_autograd(_from_state_backward, setup_context=_setup)


def to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """U_g = P_gᵀ X_g: vectors [N, K], x [N, C], ptr [G + 1] -> [G, K, C]."""
    out: Tensor = to_state_triton(vectors, x, ptr, False)
    return out


def from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Y_g = P_g S_g: vectors [N, K], state [G, K, C], ptr [G + 1] -> [N, C]."""
    out: Tensor = from_state_triton(vectors, state, ptr, False)
    return out


def pairs_to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """Σ_v P_vj P_vk x_v: vectors [N, K], x [N, C] -> [G, K, K, C]."""
    k = vectors.shape[1]
    out: Tensor = to_state_triton(vectors, x, ptr, True).unflatten(1, (k, k))
    return out


def pairs_from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Σ_jk P_vj P_vk S_jk: vectors [N, K], state [G, K, K, C] -> [N, C]."""
    out: Tensor = from_state_triton(vectors, state.flatten(1, 2), ptr, True)
    return out


@op("gssc::segment_sum_triton")
def segment_sum_triton(x: Tensor, batch: Tensor | None, ptr: Tensor) -> Tensor:
    """[G, C] in float32, whatever the precision of matrix products is."""
    (nodes, c), graphs = x.shape, ptr.shape[0] - 1
    out = x.new_empty((graphs, c), dtype=torch.float32)
    if nodes == 0 or out.numel() == 0:
        return out.zero_()
    from gssc.ops.graph_sums.kernels import sum_tiles

    chunk, block_c, ptr = _tile_size(nodes, x.device), min(power_of_two(c, 16), 128), ptr.contiguous()
    several, tiles = nodes > chunk, nodes // chunk + graphs
    partial = out.new_empty((tiles, 1, c)) if several else None
    launch(
        sum_tiles, (tiles, -(-c // block_c)),
        x.contiguous(), ptr, partial, out, nodes, graphs, search_steps(graphs), chunk,
        C=c, BLOCK_N=16, BLOCK_C=block_c, SMALL_GRAPHS=graphs > 1 or not several, LARGE_GRAPHS=several,
    )  # fmt: skip
    if partial is not None:
        _add_tiles(partial, ptr, out.unsqueeze(1), chunk)
    return out


@segment_sum_triton.register_fake
def _(x: Tensor, batch: Tensor | None, ptr: Tensor) -> Tensor:
    return x.new_empty((ptr.shape[0] - 1, x.shape[1]), dtype=torch.float32)


def _segment_sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.nodes, ctx.dtype = inputs[0].shape[0], inputs[0].dtype
    ctx.save_for_backward(inputs[1])


def _segment_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (batch,) = ctx.saved_tensors
    grad = grad.expand(ctx.nodes, grad.shape[1]) if batch is None else grad.index_select(0, batch)
    return grad.to(ctx.dtype), None, None


segment_sum_triton.register_autograd(_segment_sum_backward, setup_context=_segment_sum_setup)


def segment_sum(x: Tensor, batch: Tensor | None, ptr: Tensor) -> Tensor:
    """s_g = Σ_{v in g} x_v, [G, C]."""
    out: Tensor = segment_sum_triton(x, batch, ptr)
    return out.to(x.dtype)
