"""Products and sums between the nodes of a packed batch and its graphs."""

from torch import Tensor

from gssc.checks import check_choice, check_shape, fail
from gssc.ops.graph_sums import naive, torch, triton
from gssc.ops.triton_support import can_fuse, check_fusible

__all__ = ["from_state", "segment_sum", "to_state"]

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
    check_shape("x", x, None, None)
    if batch is not None:
        check_shape("batch", batch, x.shape[0])
    elif ptr.shape[0] != 2:
        fail("batch", f"the graph number of every node for {ptr.shape[0] - 1} graphs", "None")
    return FORMS[_chosen(backend, ptr, x=x)].segment_sum(x, batch, ptr)


def _chosen(backend: str, ptr: Tensor, **tensors: Tensor) -> str:
    check_choice("backend", backend, ("auto", *FORMS))
    check_shape("ptr", ptr, None)
    if ptr.shape[0] < 1:
        fail("ptr", "at least one element", "none")
    if backend == "triton":
        check_fusible(**tensors)
    if backend != "auto":
        return backend
    return "triton" if can_fuse(*tensors.values()) else "torch"
