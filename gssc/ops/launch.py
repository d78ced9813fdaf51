"""Launching Triton kernels quickly.

Triton binds and specialises arguments anew at every launch, 0.1 ms in all. Here the compiled kernel is remembered by
what a specialisation can depend on: constants, types, alignment of pointers, divisibility of integers.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gssc.ops.triton_support import interpreting

_COMPILED: dict[tuple[Any, ...], Any] = {}
INTERPRETED = interpreting()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """``kernel[grid](*arguments, **constants)``; the former are positional, the latter ``tl.constexpr`` and options."""
    if INTERPRETED:
        kernel[grid](*arguments, **constants)
        return
    device = torch._C._cuda_getDevice()
    traits: list[Any] = [id(kernel), device, *constants.values()]  # kernels live as long as the program
    passed: list[Any] = []  # tensors as addresses: of a tensor Triton would ask the driver where it lies
    for value in arguments:
        kind = type(value)
        if kind is Tensor or kind is nn.Parameter:
            # Apart from each other, without a tuple for each: an aligned pointer is its type alone.
            address = value.data_ptr()
            traits.append(value.dtype if address % 16 == 0 else (value.dtype,))
            passed.append(address if value.is_cuda else value)  # which it refuses in words
            continue
        passed.append(value)
        if kind is int:
            divisible = 1 if value == 1 else 16 if value % 16 == 0 else 0
            narrow = -0x80000000 <= value < 0x80000000
            traits.append(divisible if narrow else (divisible, value < 0x8000000000000000))
        else:
            traits.append(kind)
    key = tuple(traits)
    known = _COMPILED.get(key)
    if known is None:
        compiled = kernel[grid](*arguments, **constants)
        values = [constants[name] for name in kernel.arg_names[len(arguments) :]]
        # What ``compiled[grid]`` would look up again; hooks of profilers that Triton offers are not called.
        _COMPILED[key] = compiled.run, compiled.function, compiled.packed_metadata, values
        return
    run, function, metadata, constant = known
    stream = torch._C._cuda_getCurrentRawStream(device)
    x, y, z = (*grid, 1, 1)[:3]
    run(x, y, z, stream, function, metadata, None, None, None, *passed, *constant)


def contiguous(*tensors: Tensor | None) -> list[Any]:
    """Tensors as kernels take them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]
