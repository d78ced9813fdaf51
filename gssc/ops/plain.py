"""Whether a program runs as it is written, on a CPU."""

import torch
from torch import Tensor, nn


def is_plain_cpu(*tensors: Tensor | None) -> bool:
    """Whether plain functions may stand for ops: ordinary tensors on the CPU, and nothing that traces or transforms.

    Compilers, exporters, modes and ``torch.func`` must see a ``torch.library`` op as a whole. To others it costs more
    than a small batch: calls from Python through the dispatcher back to Python, forward and backward.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    return all(t is None or (type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu") for t in tensors)


def one_type_on_cpu(*tensors: Tensor | None) -> bool:
    """Whether these are plain tensors on a CPU, all of one wide type, which no autocast is to change."""
    kinds = {tensor.dtype for tensor in tensors if tensor is not None}
    wide = kinds in ({torch.float32}, {torch.float64})
    return wide and not torch.is_autocast_enabled("cpu") and is_plain_cpu(*tensors)
