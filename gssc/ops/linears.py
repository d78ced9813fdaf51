"""Several Linears of one input as one product, where nothing stands in the way, also with the op that takes them."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.ops.op import Op, is_traced, quick_apply, unmodified, weight_and_bias

MERGED = 1 << 21  # numbers of the input, N × C, up to which one product pays: launches take longer than products


def linears(x: Tensor, *modules: nn.Module) -> tuple[Tensor, ...]:
    """``module(x)`` of every module, for x [N, D]; results may be columns of one tensor."""
    if not mergeable(x, *modules):
        return tuple(module(x) for module in modules)
    parameters = [*zip(*map(weight_and_bias, modules), strict=True)]
    weight, bias = (None if part[0] is None else torch.cat(part) for part in parameters)
    return F.linear(x, weight, bias).chunk(len(modules), dim=1)  # type: ignore[arg-type]


def mergeable(x: Tensor, *modules: nn.Module) -> bool:
    """Whether these are Linears alike whose weights may be used side by side, for an x that makes it worth it."""
    biased = getattr(modules[0], "bias", None) is not None
    alike = unmodified(*modules, bias=biased) and len({module.out_features for module in modules}) == 1
    return alike and not is_traced(x) and x.numel() <= MERGED


def op_of_linears(op: Op, x: Tensor, weights: Any, biases: Any, *others: Any) -> Any:
    """``op(*(F.linear(x, w, b) for w, b in ...), *others)`` as one step of autograd, where nothing `is_traced`."""
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weights, biases = x.to(dtype), [w.to(dtype) for w in weights], [b.to(dtype) for b in biases]
    if not torch.is_grad_enabled():
        return op.function(*_columns(x, torch.cat(weights), biases, len(weights)), *others)
    return _apply(op, len(weights), len(biases), x, *weights, *biases, *others)


def _columns(x: Tensor, weight: Tensor, biases: Any, parts: int) -> tuple[Tensor, ...]:
    rows = torch.addmm(torch.cat(biases), x, weight.t()) if biases else x @ weight.t()
    return rows.chunk(parts, dim=1)


class _Inner:
    """What an op keeps for its backward pass, where it is a part of a larger step."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: Sequence[Any] = ()
        self.constants: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.constants = tensors

    def set_materialize_grads(self, value: bool) -> None:
        assert not value, "gradients that are not there are None, here too"


class _OpOfLinears(torch.autograd.Function):
    """See `op_of_linears`; gradients of weights are views of one."""

    @staticmethod
    def forward(ctx: Any, op: Any, parts: int, biased: int, x: Tensor, *others: Any) -> Any:
        weights, biases, others = others[:parts], others[parts : parts + biased], others[parts + biased :]
        weight = torch.cat(weights)
        columns = _columns(x, weight, biases, parts)
        output = op.function(*columns, *others)
        needs = ctx.needs_input_grad[3:]
        told = 1 + parts + biased
        inner = _Inner((any(needs[:told]),) * parts + tuple(needs[told:]))
        op.setup_context(inner, (*columns, *others), output)
        ctx.op, ctx.inner, ctx.sizes = op, inner, (parts, biased)
        numbers = {id(column): number for number, column in enumerate(columns)}
        ctx.places = [(place, numbers[id(t)]) for place, t in enumerate(inner.saved_tensors) if id(t) in numbers]
        ctx.save_for_backward(x, weight, *weights, *biases, *inner.saved_tensors)
        ctx.mark_non_differentiable(*inner.constants)
        ctx.set_materialize_grads(False)
        inner.saved_tensors = inner.constants = ()  # autograd alone says how long they live
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (parts, biased), (x, weight, *saved) = ctx.sizes, ctx.saved_tensors
        weights, biases, saved = saved[:parts], saved[parts : parts + biased], saved[parts + biased :]
        if torch.is_grad_enabled():  # somebody will differentiate the result, also with respect to x and the weights
            weight = torch.cat(weights)
            columns = _columns(x, weight, biases, parts)
            for place, number in ctx.places:
                saved[place] = columns[number]
        ctx.inner.saved_tensors = saved
        gradients = ctx.op.backward(ctx.inner, *grads)
        ctx.inner.saved_tensors = ()
        if gradients[0] is None:
            return *[None] * (4 + parts + biased), *gradients[parts:]
        grad = joined(gradients[:parts])
        d_x = grad @ weight if ctx.needs_input_grad[3] else None
        d_biases = grad.sum(0).chunk(biased) if biased else ()
        return None, None, None, d_x, *(grad.t() @ x).chunk(parts), *d_biases, *gradients[parts:]


_apply = quick_apply(_OpOfLinears)


def empty_columns(like: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Uninitialised gradients [N, C] of ``parts`` inputs side by side in one tensor, as `joined` takes them."""
    rows = like.new_empty(like.shape[0], parts * like.shape[1])
    return rows.chunk(parts, dim=1)


def joined(columns: tuple[Tensor, ...]) -> Tensor:
    """Tensors [N, C] side by side, [N, parts · C]: a view where they stand so in memory already."""
    whole, (rows, c) = columns[0]._base, columns[0].shape
    if whole is None or whole.shape != (rows, len(columns) * c) or torch.is_grad_enabled():
        return torch.cat(columns, dim=1)
    for number, column in enumerate(columns):
        if column._base is not whole or column.data_ptr() != whole.data_ptr() + number * c * whole.itemsize:
            return torch.cat(columns, dim=1)
    return whole
