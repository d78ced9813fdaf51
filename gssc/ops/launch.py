"""Launching Triton kernels quickly.

Triton binds and specialises arguments anew at every launch, 0.1 ms in all. Here the compiled kernel is remembered by
what it depends on: constants, types and alignment of tensors. Kernels are compiled for numbers of any value.
"""

from functools import cache, reduce
from importlib import import_module
from operator import or_
from typing import Any

import torch
from torch import Tensor

from gssc.ops.triton_support import interpreting

_COMPILED: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {}
INTERPRETED = interpreting()
WIDE = 0x80000000  # from here on integers have 64 bits


@cache
def kernels_of(op: str) -> Any:
    """The module with the kernels of an op, imported where they run."""
    return import_module(f"gssc.ops.{op}.kernels")


def launch(
    kernel: Any, grid: tuple[int, ...], *tensors: Tensor | None, numbers: tuple[float, ...] = (), **constants: Any
) -> None:
    """``kernel[grid](*tensors, *numbers, **constants)``; the last are ``tl.constexpr`` and options.

    Kernels name all of their numbers in ``do_not_specialize``.
    """
    if INTERPRETED:
        kernel[grid](*tensors, *numbers, **constants)
        return
    device = torch._C._cuda_getDevice()
    # Addresses: of a tensor Triton would ask the driver where it lies. One that is not on a GPU is known to no key.
    passed = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    types = [None if tensor is None else tensor.dtype if tensor.is_cuda else tensor for tensor in tensors]
    key = (id(kernel), device, *constants.values(), *types)  # kernels live as long as the program
    if reduce(or_, filter(None, passed), 0) % 16:
        key = (*key, *(None if address is None else address % 16 for address in passed))
    for number in numbers:
        if number >= WIDE and type(number) is int:
            key = (*key, number)
    known = _COMPILED.get(key)
    if known is None:
        compiled = kernel[grid](*tensors, *numbers, **constants)
        values = tuple(constants[name] for name in kernel.arg_names[len(tensors) + len(numbers) :])
        _COMPILED[key] = (*_start(compiled), values)
        return
    start, told, values = known
    x, y, z = (*grid, 1, 1)[:3]
    start(x, y, z, torch._C._cuda_getCurrentRawStream(device), *told, *passed, *numbers, *values)


def _start(compiled: Any) -> tuple[Any, tuple[Any, ...]]:
    """What ``compiled[grid]`` would look up again, and what it is told; hooks of profilers are not called."""
    run, function, rest = compiled.run, compiled.function, (compiled.packed_metadata, None, None, None)
    scratch = (getattr(run, f"{kind}_scratch_size", None) for kind in ("global", "profile"))
    if any(scratch) or None in scratch or not import_module("triton").__version__.startswith(("3.6.", "3.7.")):
        return run, (function, *rest)
    # The same without Python in between, as these versions do it.
    return run.launch, (function, run.launch_cooperative_grid, run.launch_pdl, None, None, *rest)


def contiguous(*tensors: Tensor | None) -> list[Any]:
    """Tensors as kernels take them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]
