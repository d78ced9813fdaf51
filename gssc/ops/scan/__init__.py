"""The selective scan of state space models (S6) along the nodes of each graph, in the order in which they stand."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_shapes
from gssc.ops.op import empty_like, op
from gssc.ops.scan import naive, torch, triton
from gssc.ops.triton_support import chosen

FORMS: dict[str, Any] = {"torch": torch, "triton": triton}


@op("gssc::recurrence", fake=lambda a, b, backwards, form: empty_like(b))
def recurrence(a: Tensor, b: Tensor, backwards: bool, form: str) -> Tensor:
    """h_t = a_t ⊙ h_{t-1} + b_t, or, backwards, h_t = a_{t+1} ⊙ h_{t+1} + b_t: [N, F]; the other's gradient."""
    return FORMS[form].recurrence(a, b, backwards)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)
    ctx.options = inputs[2:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (a, h), (backwards, form) = ctx.saved_tensors, ctx.options
    d_b = recurrence(a, grad.contiguous(), not backwards, form)
    earlier = F.pad((d_b if backwards else h)[:-1], (0, 0, 1, 0))
    return earlier * (h if backwards else d_b), d_b, None, None


recurrence.register_autograd(_backward, setup_context=_setup)


def selective_scan(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor, backend: str = "auto"
) -> Tensor:
    r"""A linear recurrence whose steps depend on what it reads; h = 0 where a graph begins.

    .. math:: h_t = \exp(\delta_t A) \odot h_{t-1} + (\delta_t \odot u_t) b_t^\top, \qquad y_t = h_t c_t

    From `Mamba <https://arxiv.org/abs/2312.00752>`_, Algorithm 2. Stores [N, E, S]; nothing looks at ``ptr`` on the
    host, and it can be differentiated any number of times.

    Args:
        u: What is read, [N, E].
        delta: Lengths of steps, not negative, [N, E].
        a: Rates of decay A, not positive, [E, S].
        b: How the state takes in, [N, S].
        c: How it is read out, [N, S].
        ptr: First node of every graph and, last, N: [G + 1].
        backend: ``"naive"``, ``"torch"``, ``"triton"``, or ``"auto"``: triton where it can be, else torch.

    Returns:
        y, [N, E].
    """
    backend = chosen(backend, u=u, delta=delta, a=a, b=b, c=c)
    check_shapes(("u", u, (None, None)), ("a", a, (u.shape[1], None)), ("ptr", ptr, (None,)))
    per_node = (u.shape[0], a.shape[1])
    check_shapes(("delta", delta, tuple(u.shape)), ("b", b, per_node), ("c", c, per_node))
    if backend == "naive" or not u.numel():
        return naive.selective_scan(u, delta, a, b, c, ptr)
    first = u.new_zeros(u.shape[0] + 1).index_fill_(0, ptr, 1.0)[:-1, None, None] > 0
    decay = (delta.unsqueeze(2) * a).masked_fill(first, float("-inf")).exp()  # of which exp keeps the result alone
    h = recurrence(decay.flatten(1), ((delta * u).unsqueeze(2) * b.unsqueeze(1)).flatten(1), False, backend)
    return (h.view_as(decay) * c.unsqueeze(1)).sum(2)
