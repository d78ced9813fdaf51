"""The sum of the nodes of every graph in Triton: no atomics, no look at sizes, float32 inside."""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.graph_sums.triton import add_tiles, tile_size
from gssc.ops.triton_support import power_of_two, search_steps


@torch.library.custom_op("gssc::segment_sum_fused", mutates_args=())
def segment_sum_fused(x: Tensor, batch: Tensor, ptr: Tensor) -> Tensor:
    """[G, C] in float32."""
    (nodes, c), graphs = x.shape, ptr.shape[0] - 1
    out = x.new_empty((graphs, c), dtype=torch.float32)
    if nodes == 0 or out.numel() == 0:
        return out.zero_()
    from gssc.ops.conv.kernels import reduce
    from gssc.ops.segment_sum.kernels import sum_tiles

    chunk, block_c, ptr = tile_size(nodes, x.device), min(power_of_two(c, 16), 128), ptr.contiguous()
    several, tiles = nodes > chunk, nodes // chunk + graphs
    partial = out.new_empty((tiles, 1, c)) if several else None
    sum_tiles[(tiles, -(-c // block_c))](
        x.contiguous(), ptr, partial, out, nodes, graphs, search_steps(graphs), chunk,
        C=c, BLOCK_N=16, BLOCK_C=block_c, SMALL_GRAPHS=graphs > 1 or not several, LARGE_GRAPHS=several,
    )  # fmt: skip
    if partial is not None:
        add_tiles(reduce, partial, ptr, out.unsqueeze(1), chunk)
    return out


@segment_sum_fused.register_fake
def _(x: Tensor, batch: Tensor, ptr: Tensor) -> Tensor:
    return x.new_empty((ptr.shape[0] - 1, x.shape[1]), dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.dtype = inputs[0].dtype
    ctx.save_for_backward(inputs[1])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return grad.index_select(0, ctx.saved_tensors[0]).to(ctx.dtype), None, None


segment_sum_fused.register_autograd(_backward, setup_context=_setup)


def segment_sum(x: Tensor, batch: Tensor, ptr: Tensor) -> Tensor:
    """Σ_{v in g} x_v, [G, C]."""
    out: Tensor = segment_sum_fused(x, batch, ptr)
    return out.to(x.dtype)
