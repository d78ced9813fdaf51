"""PyG's ``batch [N]`` (graph number of every node) as ``ptr [G + 1]`` (first node of every graph)."""

import torch
from torch import Tensor

from gssc.checks import check_shape, fail
from gssc.ops.op import op


@op("gssc::batch_to_ptr")
def _batch_to_ptr(batch: Tensor, num_graphs: int) -> Tensor:
    if batch.numel() and batch.device.type == "cpu":  # a GPU is not made to wait for a look at values
        if bool((batch[1:] < batch[:-1]).any()):
            fail("batch", "graph numbers in ascending order (sorted, as PyG makes them)", "an unsorted tensor")
        low, high = int(batch[0]), int(batch[-1])
        if low < 0 or high >= num_graphs:
            fail("batch", f"graph numbers in 0..{num_graphs - 1}", f"{low}..{high}")
    numbers = torch.arange(num_graphs + 1, dtype=batch.dtype, device=batch.device)
    return torch.searchsorted(batch.contiguous(), numbers)


@_batch_to_ptr.register_fake
def _(batch: Tensor, num_graphs: int) -> Tensor:
    return torch.empty(num_graphs + 1, dtype=torch.int64, device=batch.device)


def batch_to_ptr(batch: Tensor | None, num_nodes: int, num_graphs: int, device: torch.device) -> Tensor:
    """Where each graph of a sorted ``batch`` begins, [G + 1]; ``batch=None`` is one graph.

    That it is sorted is checked on the CPU only; on a GPU nothing waits for the device.
    """
    if batch is None:
        if num_graphs != 1:
            fail("batch", f"the graph number of every node for {num_graphs} graphs", "None")
        return torch.arange(2, dtype=torch.int64, device=device) * num_nodes
    check_shape("batch", batch, num_nodes)
    if batch.dtype not in (torch.int64, torch.int32):
        fail("batch", "an integer tensor", batch.dtype)
    ptr: Tensor = _batch_to_ptr(batch, num_graphs)
    return ptr
