"""Products and sums between the nodes of a packed batch and its graphs."""

from typing import Any

from torch import Tensor, diff

from gssc.checks import check_shape, fail
from gssc.ops.graph_sums import naive, torch, triton
from gssc.ops.op import op
from gssc.ops.triton_support import chosen

__all__ = ["from_state", "gathered", "graph_pool", "segment_sum", "to_state"]

FORMS = {"naive": naive, "torch": torch, "triton": triton}


def to_state(vectors: Tensor, x: Tensor, ptr: Tensor, backend: str = "auto") -> Tensor:
    r"""What graphs remember of their nodes, :math:`U_g = P_g^\top X_g`.

    Args:
        vectors: P, [N, K].
        x: X, [N, C].
        ptr: First node of every graph and, last, N: [G + 1].
        backend: ``"naive"``, ``"torch"``, ``"triton"`` (on a GPU, without a look at sizes), or ``"auto"``: triton where
            it can be, else torch.

    Returns:
        U, [G, K, C], float32 for half precision.
    """
    check_shape("vectors", vectors, None, None)
    check_shape("x", x, vectors.shape[0], None)
    return FORMS[_chosen(backend, ptr, vectors=vectors, x=x)].to_state(vectors, x, ptr)


def from_state(vectors: Tensor, state: Tensor, ptr: Tensor, backend: str = "auto") -> Tensor:
    r"""What nodes read from the states of their graphs, :math:`Y_g = P_g S_g`.

    Args:
        vectors: P, [N, K].
        state: S, [G, K, C].
        ptr: First node of every graph and, last, N: [G + 1].
        backend: As for ``to_state``.

    Returns:
        Y, [N, C], float32 for half precision.
    """
    check_shape("vectors", vectors, None, None)
    check_shape("ptr", ptr, None)
    check_shape("state", state, ptr.shape[0] - 1, vectors.shape[1], None)
    return FORMS[_chosen(backend, ptr, vectors=vectors, state=state)].from_state(vectors, state, ptr)


def segment_sum(x: Tensor, batch: Tensor | None, ptr: Tensor, backend: str = "auto") -> Tensor:
    r"""Sum over the nodes of every graph, :math:`s_g = \sum_{v \in g} x_v`; zero for a graph without nodes.

    Args:
        x: Node features, [N, C].
        batch: Graph number of every node, sorted, [N]; ``None`` for one graph.
        ptr: The same as first nodes, [G + 1].
        backend: ``"naive"``, ``"torch"``, ``"triton"`` (repeats bit by bit on a GPU, which torch does not), or
            ``"auto"``: triton where it can be, else torch.

    Returns:
        s, [G, C].
    """
    return graph_pool(x, batch, ptr, "sum", backend)


def graph_pool(x: Tensor, batch: Tensor | None, ptr: Tensor, how: str, backend: str = "auto") -> Tensor:
    """``"sum"``, ``"mean"`` or ``"max"`` over the nodes of every graph, [G, C]; zero for a graph without nodes.

    Arguments as of `segment_sum`. Sums are made in a fixed order, so that results repeat bit by bit on a GPU too.
    """
    if x.dim() != 2:
        check_shape("x", x, None, None)
    if batch is None and ptr.shape[0] != 2:
        fail("batch", f"the graph number of every node for {ptr.shape[0] - 1} graphs", "None")
    if batch is not None and batch.shape != x.shape[:1]:
        check_shape("batch", batch, x.shape[0])
    if backend != "auto" or x.is_cuda or ptr.dim() != 1 or ptr.shape[0] < 1:
        backend = _chosen(backend, ptr, x=x)
    if how == "max":
        zeros = x.new_zeros(ptr.shape[0] - 1, x.shape[1])
        if batch is None:
            return x.amax(0, keepdim=True) if x.shape[0] else zeros
        return zeros.scatter_reduce(0, batch.unsqueeze(1).expand_as(x), x, "amax", include_self=False)
    if backend in ("naive", "triton"):
        total = FORMS[backend].segment_sum(x, batch, ptr)
    elif batch is None:
        total = x.sum(0, keepdim=True)
    else:
        total = x.new_zeros(ptr.shape[0] - 1, x.shape[1]).index_add(0, batch, x)
    return total if how == "sum" else total / diff(ptr).clamp(min=1).unsqueeze(1).to(x.dtype)


@op("gssc::gathered")
def gathered(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
    """Rows [N, ...] by number, [M, ...], with a gradient that is summed in a fixed order, where others use atomics.

    Sorted by what they read, readers [M] stand from ``ptr`` [N + 1]; ``order`` sorts them, ``None`` where they are.
    """
    return rows.index_select(0, index)


gathered.register_fake(lambda rows, index, ptr, order: rows.new_empty(index.shape[0], *rows.shape[1:]))


def _gathered_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    index, ptr, order = ctx.saved_tensors
    if order is not None:
        grad, index = grad.index_select(0, order), index.index_select(0, order)
    return segment_sum(grad.flatten(1), index, ptr).unflatten(1, grad.shape[1:]), None, None, None


gathered.register_autograd(
    _gathered_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[1:])
)


def _chosen(backend: str, ptr: Tensor, **tensors: Tensor) -> str:
    check_shape("ptr", ptr, None)
    if ptr.shape[0] < 1:
        fail("ptr", "at least one element", "none")
    return chosen(backend, **tensors)
