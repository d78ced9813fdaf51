"""Several Linears of one input as one product, where nothing stands in the way, also with the op that takes them."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.ops.linears import triton
from gssc.ops.op import is_traced, quick_apply, unmodified, weight_and_bias

__all__ = ["linears", "mergeable", "op_of_linears"]

MERGED = 1 << 21  # numbers of the input, N × C, up to which one product pays by itself, and what it makes is kept


def linears(x: Tensor, *modules: nn.Module) -> tuple[Tensor, ...]:
    """``module(x)`` of every module, for x [N, D]; results may be columns of one tensor."""
    if not mergeable(x, *modules) or x.numel() > MERGED:
        return tuple(module(x) for module in modules)
    parameters = [*zip(*map(weight_and_bias, modules), strict=True)]
    weight, bias = (None if part[0] is None else torch.cat(part) for part in parameters)
    return F.linear(x, weight, bias).chunk(len(modules), dim=1)  # type: ignore[arg-type]


def mergeable(x: Tensor, *modules: nn.Module) -> bool:
    """Whether these are Linears alike whose weights may be used side by side."""
    biased = getattr(modules[0], "bias", None) is not None
    alike = unmodified(*modules, bias=biased) and len({module.out_features for module in modules}) == 1
    return alike and not is_traced(x)


def op_of_linears(op: Any, x: Tensor, weights: Any, biases: Any, *others: Any, reads: int, returned: int) -> Any:
    """``op.function(Y, *others)``, Y = [x W₀ᵀ + b₀ | x W₁ᵀ + b₁ | …]: one step of autograd, where nothing `is_traced`.

    The first results are ``returned``. The op, an `Op` or what has its parts, keeps Y as the first of what it keeps;
    where that is large, what its backward pass ``reads``, so many parts from the first, is computed anew instead. What
    reaches x as one of the others is added to the gradient of x in the same launch.
    """
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weights, biases = x.to(dtype), [w.to(dtype) for w in weights], [b.to(dtype) for b in biases]
    if not torch.is_grad_enabled():
        return op.function(triton.forward(x, (*weights,), (*biases,)), *others)[:returned]
    again = next((place for place, other in enumerate(others) if other is x), None)
    return _apply((op, reads, returned, again, len(weights), len(biases)), x, *weights, *biases, *others)


class _Inner:
    """What an op keeps for its backward pass, where it is a part of a larger step."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: Sequence[Any] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *_: Tensor) -> None:
        """What is not differentiable is not returned."""

    def set_materialize_grads(self, value: bool) -> None:
        assert not value, "gradients that are not there are None, here too"


class _OpOfLinears(torch.autograd.Function):
    """See `op_of_linears`; gradients of weights are views of one."""

    @staticmethod
    def forward(ctx: Any, call: Any, x: Tensor, *others: Any) -> Any:
        op, _, returned, _, parts, biased = ctx.call = call
        weights, biases, others = others[:parts], others[parts : parts + biased], others[parts + biased :]
        rows = triton.forward(x, weights, biases)
        output = op.function(rows, *others)
        needs, first = ctx.needs_input_grad, 2 + parts + biased
        ctx.inner = inner = _Inner((any(needs[1:first]), *needs[first:]))
        op.setup_context(inner, (rows, *others), output)
        ctx.save_for_backward(x, *weights, *biases, rows if x.numel() <= MERGED else None, *inner.saved_tensors[1:])
        ctx.set_materialize_grads(False)
        inner.saved_tensors = ()  # autograd alone says how long they live
        return output[:returned]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (op, reads, _, again, parts, biased), (x, *saved) = ctx.call, ctx.saved_tensors
        weights, biases, saved = saved[:parts], saved[parts : parts + biased], saved[parts + biased :]
        if saved[0] is None or torch.is_grad_enabled():  # if so, somebody will differentiate it by x and the weights
            some = slice(parts if torch.is_grad_enabled() else reads)
            saved[0] = triton.forward(x, (*weights[some],), (*biases[some],))
        ctx.inner.saved_tensors = saved
        grad, *gradients = op.backward(ctx.inner, *grads)
        ctx.inner.saved_tensors = ()
        if grad is None:
            return *[None] * (2 + parts + biased), *gradients
        added, need_x = None, ctx.needs_input_grad[1]
        if again is not None:
            added, gradients[again] = gradients[again], None
        d_x, d_weights, d_biases = triton.backward(
            grad, x, (*weights,), biased=biased > 0, need_x=need_x, added=added
        )  # fmt: skip
        return None, d_x, *d_weights.chunk(parts), *(d_biases.chunk(biased) if biased else ()), *gradients


_apply = quick_apply(_OpOfLinears)
