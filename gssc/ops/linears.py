"""Several Linears of one input as one product, and two with a ReLU between them, where nothing stands in the way."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.ops.op import is_traced, unmodified

MERGED = 1 << 21  # numbers of the input, N × C, up to which one product pays: launches take longer than products


def products(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """``x Wᵀ`` of every weight [C, D], for x [N, D]; results may be columns of one tensor."""
    if is_traced(x) or x.numel() > MERGED:
        return tuple([F.linear(x, weight) for weight in weights])
    return _merged(x, weights, ())


def linears(x: Tensor, *modules: nn.Module) -> tuple[Tensor, ...]:
    """``module(x)`` of every module, for x [N, D]; results may be columns of one tensor."""
    biased = getattr(modules[0], "bias", None) is not None
    alike = unmodified(*modules, bias=biased) and len({module.out_features for module in modules}) == 1
    if not alike or is_traced(x) or x.numel() > MERGED:
        return tuple(module(x) for module in modules)
    weights: Any = [module.weight for module in modules]
    return _merged(x, weights, [module.bias for module in modules] if biased else ())


def _merged(x: Tensor, weights: Any, biases: Any) -> tuple[Tensor, ...]:
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weights, biases = x.to(dtype), [w.to(dtype) for w in weights], [b.to(dtype) for b in biases]
    columns: tuple[Tensor, ...] = _Merged.apply(x, len(weights), *weights, *biases)
    return columns


class _Merged(torch.autograd.Function):
    """Products of one input side by side, as [N, C] each: one step of autograd for all, gradients are views of one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: int, *weights: Tensor) -> Any:
        ctx.parts, ctx.biased = parts, len(weights) > parts
        weight = torch.cat(weights[:parts])
        ctx.save_for_backward(x, weight, *weights[:parts])
        rows = torch.addmm(torch.cat(weights[parts:]), x, weight.t()) if ctx.biased else x @ weight.t()
        return rows.chunk(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate the result: with respect to those as well
            weight = torch.cat(weights)
        grad = joined(grads)
        d_x = grad @ weight if ctx.needs_input_grad[0] else None
        d_biases = grad.sum(0).chunk(ctx.parts) if ctx.biased else ()
        return d_x, None, *(grad.t() @ x).chunk(ctx.parts), *d_biases


def empty_columns(like: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Uninitialised gradients [N, C] of ``parts`` inputs side by side in one tensor, as `joined` takes them."""
    rows = like.new_empty(like.shape[0], parts * like.shape[1])
    return rows.chunk(parts, dim=1)


def joined(columns: tuple[Tensor, ...]) -> Tensor:
    """Tensors [N, C] side by side, [N, parts · C]: a view where they stand so in memory already."""
    first, parts = columns[0], len(columns)
    rows, c = first.shape
    if rows and first.stride() == (parts * c, 1) and not torch.is_grad_enabled():
        storage, start = first.untyped_storage().data_ptr(), first.storage_offset()
        for number, column in enumerate(columns):
            place = (column.untyped_storage().data_ptr(), column.storage_offset(), column.stride(), column.dtype)
            if place != (storage, start + number * c, first.stride(), first.dtype):
                return torch.cat(columns, dim=1)
        return first.as_strided((rows, parts * c), (parts * c, 1))
    return torch.cat(columns, dim=1)
