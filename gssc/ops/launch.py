"""Launching Triton kernels quickly.

Triton binds and specialises arguments anew at every launch, 0.1 ms in all. Here the compiled kernel is remembered by
what a specialisation can depend on: constants, types, alignment of pointers, divisibility of integers.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.triton_support import interpreting

_COMPILED: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """``kernel[grid](*arguments, **constants)``; the former are positional, the latter ``tl.constexpr`` and options."""
    if interpreting():
        kernel[grid](*arguments, **constants)
        return
    traits: list[Any] = [kernel, torch.cuda.current_device(), *constants.values()]
    for value in arguments:
        if isinstance(value, Tensor):
            traits.append(value.dtype)
            traits.append(value.data_ptr() % 16 == 0)
        elif type(value) is int:
            traits.append((value == 1, value % 16 == 0, -0x80000000 <= value < 0x80000000, value < 0x8000000000000000))
        else:
            traits.append(None if value is None else type(value))
    key = tuple(traits)
    known = _COMPILED.get(key)
    if known is None:
        compiled = kernel[grid](*arguments, **constants)
        names = kernel.arg_names[len(arguments) :]
        _COMPILED[key] = compiled, tuple(constants[name] for name in names)
        return
    compiled, values = known
    compiled[(*grid, 1, 1)[:3]](*arguments, *values)
