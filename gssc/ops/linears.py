"""Several Linears of one input as one product, where nothing stands in the way."""

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
    columns: tuple[Tensor, ...] = _Columns.apply(F.linear(x, torch.cat(weights)), len(weights))
    return columns


def linears(x: Tensor, *modules: nn.Module) -> tuple[Tensor, ...]:
    """``module(x)`` of every module, for x [N, D]; results may be columns of one tensor."""
    biased = getattr(modules[0], "bias", None) is not None
    alike = unmodified(*modules, bias=biased) and len({module.out_features for module in modules}) == 1
    if not alike or is_traced(x) or x.numel() > MERGED:
        return tuple(module(x) for module in modules)
    weight = torch.cat([module.weight for module in modules])  # type: ignore[misc]
    bias = torch.cat([module.bias for module in modules]) if biased else None  # type: ignore[misc]
    columns: tuple[Tensor, ...] = _Columns.apply(F.linear(x, weight, bias), len(modules))
    return columns


class _Columns(torch.autograd.Function):
    """The parts of a tensor [N, parts · C] as [N, C] each; their gradients are joined without a copy where they can."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, parts: int) -> Any:
        return rows.chunk(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return joined(grads), None


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
