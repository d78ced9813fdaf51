"""The products of ``torch.py``, for vectors and for their pairs, and sums over graphs in Triton.

With ``pairs`` P stands for P⊗P, [N, K²], which is never stored. Results are float32, and repeat bit by bit: graphs of
several tiles are summed in two stages. Derivatives in P of the products with pairs store [N, K²], and are not what
training needs. Nothing looks at the sizes of graphs on the host.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.graph_sums.torch import register_gradients
from gssc.ops.launch import kernels_of, launch
from gssc.ops.op import op
from gssc.ops.tiles import Tiles
from gssc.ops.triton_support import multiprocessors, power_of_two, wants_exact

ROWS, BLOCK_S, STAGES = 32, 32, 2
TILES, LEAST = 4, 128  # tiles per processor, and nodes of one at least


def _tiles(rows: Tensor, ptr: Tensor) -> Tiles:
    nodes = rows.shape[0]
    share = -(-nodes // (TILES * multiprocessors(rows.device)))
    return Tiles(nodes, ptr.shape[0] - 1, max(LEAST, -(-share // ROWS) * ROWS))


def _constants(vectors: Tensor, other: Tensor, pairs: bool) -> dict[str, Any]:
    """Of a product of P with what has C channels."""
    k, c = vectors.shape[1], other.shape[-1]
    blocks = {"BLOCK_N": ROWS, "BLOCK_S": BLOCK_S, "BLOCK_C": min(power_of_two(c, 16), 64)}
    effort = {"PRECISION": "tf32x3" if wants_exact(vectors, other) else "tf32", "num_warps": 4, "num_stages": STAGES}
    return {"K": k, "S": k * k if pairs else k, "C": c, "PAIRS": pairs} | blocks | effort


@op("gssc::to_state_triton")
def to_state(vectors: Tensor, x: Tensor, ptr: Tensor, pairs: bool = False) -> Tensor:
    """U_g = P_gᵀ X_g: vectors [N, K], x [N, C], ptr [G + 1] -> [G, K, C], or [G, K², C] with pairs."""
    state = _empty_state(vectors, x, ptr, pairs)
    if x.shape[0] == 0 or state.numel() == 0:
        return state.zero_()
    kernels = kernels_of("graph_sums")
    tiles, constants = _tiles(x, ptr), _constants(vectors, x, pairs)
    partial, ptr = tiles.partial(state), ptr.contiguous()
    grid = (tiles.count, -(-state.shape[1] // BLOCK_S), -(-x.shape[1] // constants["BLOCK_C"]))
    tensors = (vectors.contiguous(), x.contiguous(), ptr, partial, state)
    launch(kernels.to_state, grid, *tensors, numbers=tiles.numbers, **tiles.kinds, **constants)
    if partial is not None:
        tiles.reduce(partial, ptr, state)
    return state


@to_state.register_fake
def _empty_state(vectors: Tensor, x: Tensor, ptr: Tensor, pairs: bool = False) -> Tensor:
    k = vectors.shape[1]
    return x.new_empty((ptr.shape[0] - 1, k * k if pairs else k, x.shape[1]), dtype=torch.float32)


@op("gssc::from_state_triton")
def from_state(vectors: Tensor, state: Tensor, ptr: Tensor, pairs: bool = False) -> Tensor:
    """Y_g = P_g S_g: vectors [N, K], state [G, K, C], or [G, K², C] with pairs, ptr [G + 1] -> [N, C]."""
    out = _empty_rows(vectors, state)
    if out.numel() == 0 or state.shape[1] == 0:
        return out.zero_()
    kernels = kernels_of("graph_sums")
    tiles, constants = _tiles(out, ptr), _constants(vectors, state, pairs)
    grid = (tiles.count, -(-out.shape[1] // constants["BLOCK_C"]))
    tensors = (vectors.contiguous(), state.contiguous(), ptr.contiguous(), out)
    launch(kernels.from_state, grid, *tensors, numbers=tiles.numbers, **constants)
    return out


@from_state.register_fake
def _empty_rows(vectors: Tensor, state: Tensor, *_: Any) -> Tensor:
    return state.new_empty((vectors.shape[0], state.shape[2]), dtype=torch.float32)


register_gradients(to_state, from_state)


def pairs_to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """Σ_v P_vj P_vk x_v: vectors [N, K], x [N, C] -> [G, K, K, C]."""
    return to_state(vectors, x, ptr, True).unflatten(1, (vectors.shape[1],) * 2)


def pairs_from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Σ_jk P_vj P_vk S_jk: vectors [N, K], state [G, K, K, C] -> [N, C]."""
    return from_state(vectors, state.flatten(1, 2), ptr, True)


@op("gssc::segment_sum_triton", fake=lambda x, batch, ptr: x.new_empty(ptr.shape[0] - 1, x.shape[1]))
def segment_sum(x: Tensor, batch: Tensor | None, ptr: Tensor) -> Tensor:
    """s_g = Σ_{v in g} x_v, [G, C], summed in float32 whatever the precision of matrix products is."""
    out = x.new_empty((ptr.shape[0] - 1, x.shape[1]), dtype=torch.float32)
    if x.shape[0] == 0 or out.numel() == 0:
        return out.zero_().to(x.dtype)
    tiles, c, ptr = _tiles(x, ptr), x.shape[1], ptr.contiguous()
    block_c, partial = min(power_of_two(c, 16), 128), tiles.partial(out.unsqueeze(1))
    launch(
        kernels_of("graph_sums").sum_tiles, (tiles.count, -(-c // block_c)), x.contiguous(), ptr, partial, out,
        numbers=tiles.numbers,
        C=c, BLOCK_N=16, BLOCK_C=block_c, **tiles.kinds,
    )  # fmt: skip
    if partial is not None:
        tiles.reduce(partial, ptr, out)
    return out.to(x.dtype)


def _segment_sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, batch, _ = inputs
    ctx.nodes = x.shape[0]
    ctx.save_for_backward(batch)


def _segment_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (batch,) = ctx.saved_tensors
    return grad.expand(ctx.nodes, -1) if batch is None else grad.index_select(0, batch), None, None


segment_sum.register_autograd(_segment_sum_backward, setup_context=_segment_sum_setup)
