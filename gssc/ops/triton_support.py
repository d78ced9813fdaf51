"""What the fused kernels share: where they can run, how exact products are, how many tiles there are.

Triton is optional and imported only by the modules named ``kernels``, at the first launch.
"""

import importlib.util
import os
from functools import lru_cache

import torch
from torch import Tensor

from gssc.checks import check_choice, fail

BACKENDS = ("auto", "naive", "torch", "triton")  # of an op
HAS_TRITON = importlib.util.find_spec("triton") is not None
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def interpreting() -> bool:
    """Whether Triton runs kernels in Python on the CPU (TRITON_INTERPRET=1, set before Triton is imported)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def exporting() -> bool:
    """Whether ``torch.export`` traces: limits on sizes would then become limits of the exported program.

    ``torch.compiler.is_exporting()`` says so inside ``torch.compile`` as well, in PyTorch 2.11.
    """
    flag = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if flag is None else flag


def can_fuse(*tensors: Tensor | None) -> bool:
    """Whether ``"auto"`` takes the kernels: all tensors on a GPU, in float32, bfloat16 or float16."""
    for tensor in tensors:
        if tensor is not None and not (tensor.is_cuda and tensor.dtype in FLOATS):
            return False
    return HAS_TRITON


def chosen(backend: str, **tensors: Tensor | None) -> str:
    """The backend that was asked for, where it can be; for ``"auto"`` triton where that can be, else torch."""
    check_choice("backend", backend, BACKENDS)
    if backend == "triton":
        check_fusible(**tensors)
    if backend != "auto":
        return backend
    return "triton" if can_fuse(*tensors.values()) else "torch"


def check_fusible(**tensors: Tensor | None) -> None:
    """A one-line error where ``backend="triton"`` was asked for and cannot be."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        check_on_gpu(name, tensor)
        if tensor.dtype not in FLOATS:
            fail(name, "float32, bfloat16 or float16 for backend='triton'", tensor.dtype)


def check_on_gpu(name: str, tensor: Tensor) -> None:
    """The same for kernels that take float64 as well."""
    if not HAS_TRITON:
        fail("backend", "'torch' or 'auto' where Triton is not installed", "'triton'")
    if not tensor.is_cuda and not interpreting():
        fail(name, "a tensor on a GPU for backend='triton'", tensor.device)


def wants_exact(*tensors: Tensor | None) -> bool:
    """Whether products are to be those of float32: as ``torch.set_float32_matmul_precision`` says, at run time.

    Under "highest", PyTorch's default, they are, where any factor is float32; under "high" and "medium" they are tf32.
    Half precision is exact in tf32 to begin with, and sums are float32 in any case.
    """
    wide = any(t is not None and t.dtype == torch.float32 for t in tensors)
    return wide and torch.get_float32_matmul_precision() == "highest"


@lru_cache(maxsize=16)
def multiprocessors(device: torch.device) -> int:
    """Processors of a GPU; a few for the interpreter."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache(maxsize=16)
def shared_memory(device: torch.device) -> int:
    """Bytes that one program may use; any number for the interpreter, and where PyTorch does not tell."""
    if device.type != "cuda":
        return 1 << 30
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 1 << 30)


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``number`` and at least ``least``."""
    return max(least, 1 << max(number - 1, 0).bit_length())
