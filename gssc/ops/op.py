"""One source for both ways to call an op, and when a shortcut must not be taken because somebody watches.

Compilers, exporters, dispatch modes and ``torch.func`` must see an op as a whole, as ``torch.library`` offers it. To
others that way costs 0.7 ms a call: there the same functions run as a ``torch.autograd.Function``, or as they are where
nothing has a gradient.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

WEIGHTS = ("weight", "bias")
# Of arguments that nothing can hide behind; other types are looked at.
PLAIN_TYPES = frozenset((Tensor, nn.Parameter, type(None), bool, int, float, str, list, tuple))


class Op:
    """A function of tensors, numbers and ``None`` with its own backward pass; made by `op`."""

    def __init__(self, name: str, function: Callable[..., Any], fake: Callable[..., Any] | None) -> None:
        self.function = function
        self.library = torch.library.custom_op(name, _apart(function), mutates_args=())
        if fake is not None:
            self.library.register_fake(fake)
        self.apply: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., None] | None = None

    def register_fake(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        """Shapes and types of the results, for whoever traces."""
        self.library.register_fake(fake)
        return fake

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., None]) -> None:
        """``setup_context(ctx, inputs, output)`` keeps what ``backward(ctx, *grads)`` needs."""
        self.library.register_autograd(backward, setup_context=setup_context)
        self.backward, self.setup_context = backward, setup_context

        # In one function: PyTorch looks at the signature of a forward that has a setup_context, in every call.
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = self.function(*inputs)
            setup_context(ctx, inputs, output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self.apply = quick_apply(type(self.function.__name__, (torch.autograd.Function,), members))

    def __call__(self, *inputs: Any) -> Any:
        if is_traced(*inputs):
            return self.library(*inputs)
        if self.apply is None or not torch.is_grad_enabled():
            return self.function(*inputs)
        return self.apply(*inputs)


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with results none of which shares memory with another, as ``torch.library`` wants them."""

    @wraps(function)
    def apart(*inputs: Any, **named: Any) -> Any:
        results = function(*inputs, **named)
        if not isinstance(results, (list, tuple)):
            return results
        seen: set[int] = set()
        separate = []
        for tensor in results:
            memory = tensor.untyped_storage().data_ptr()
            separate.append(tensor.clone() if memory in seen else tensor)
            seen.add(memory)
        return type(results)(separate)

    return apart


def quick_apply(function: Any) -> Callable[..., Any]:
    """``apply`` of an autograd function behind its preparations for ``torch.func``: for where nothing `is_traced`."""
    return super(torch.autograd.Function, function).apply


def op(name: str, fake: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Op]:
    """Make an `Op` of a function; tensors must be arguments of their own, not inside of lists.

    Shapes and types of its results are those of the ``fake``, if it is not registered later.
    """
    return lambda function: Op(name, function, fake)


def empty_like(x: Tensor, *_: Any) -> Tensor:
    """Uninitialised, contiguous, of the shape and type of the first argument: what many ops return."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def promoted(*tensors: Tensor | None, least: torch.dtype | None = None) -> torch.dtype:
    """The dtype that tensors, one at least, are promoted to, and ``least`` with them."""
    dtype = least
    for tensor in tensors:
        if tensor is not None and tensor.dtype != dtype:
            dtype = tensor.dtype if dtype is None else torch.promote_types(dtype, tensor.dtype)
    assert dtype is not None
    return dtype


def is_traced(*values: Any) -> bool:
    """Whether something watches the program instead of running it: a compiler, a mode, ``torch.func``, a subclass."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return True
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return True
    if PLAIN_TYPES.issuperset(map(type, values)):
        return False
    return any(isinstance(value, Tensor) and type(value) not in PLAIN_TYPES for value in values)


def unmodified(*modules: nn.Module | None, kind: type[nn.Module] = nn.Linear, bias: bool | None = None) -> bool:
    """Whether the weights of modules may be used without calling them: PyTorch's own class, and nobody listens.

    One that was replaced (adapters, quantisation) or has hooks (pruning, spectral norm, probes) must be called. Where a
    ``bias`` matters, all are to have one or none. What is ``None`` stands in nobody's way.
    """
    for module in modules:
        if module is None:
            continue
        state = module.__dict__
        if type(module) is not kind or state["_forward_hooks"] or state["_forward_pre_hooks"] \
                or state["_backward_hooks"] or state["_backward_pre_hooks"]:  # fmt: skip
            return False
        if bias is not None:
            known = state["_parameters"]
            own = known["bias"] if "bias" in known else module.bias  # noqa: SIM401 (get would look it up in any case)
            if (own is not None) != bias:
                return False
    return True


def weight_and_bias(module: nn.Module) -> Any:
    """As attributes, but without the module's search for them, which takes as long as a small op."""
    known = module.__dict__["_parameters"]
    return tuple(known.values()) if tuple(known) == WEIGHTS else (module.weight, module.bias)


def composed_gradients(
    function: Callable[..., Any], inputs: Sequence[Any], needed: Sequence[Any], *grads: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients of ``function(*inputs)`` for the inputs that need one, themselves differentiable; None for others.

    For backward passes that may be differentiated: ``function`` is made of PyTorch's ops. Some results may have no
    gradient. Each input is replaced by a view of it. Inputs may depend on each other (x and what a layer made of x,
    weights used twice): asked for the inputs themselves, autograd would follow the graph from one into the other and
    count that path twice. What is ``needed`` beyond the inputs gets None.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        views = [value.view_as(value) if isinstance(value, Tensor) else value for value in inputs]
        leaves = [view for view, need in zip(views, needed, strict=False) if need]
        results = function(*views)
        results = results if isinstance(results, tuple) else (results,)
        pairs = [(y, grad.to(y.dtype)) for y, grad in zip(results, grads, strict=True) if grad is not None]
        if not pairs or not leaves:
            return (None,) * len(needed)
        ends, given = zip(*pairs, strict=True)
        gradients = iter(torch.autograd.grad(ends, leaves, given, create_graph=again, allow_unused=True))
    found = [next(gradients) if need else None for need in needed[: len(views)]]
    return *found, *[None] * (len(needed) - len(views))
