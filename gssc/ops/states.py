"""Products and sums between nodes and graphs as ops: arguments checked, backend chosen."""

from torch import Tensor

from gssc.checks import check_shape, fail
from gssc.ops.graph_sums import naive as _state_naive
from gssc.ops.graph_sums import torch as _state_eager
from gssc.ops.graph_sums import triton as _state_fused
from gssc.ops.messages import Backend, takes_kernels
from gssc.ops.segment_sum import naive as _sum_naive
from gssc.ops.segment_sum import torch as _sum_eager
from gssc.ops.segment_sum import triton as _sum_fused

STATES = {"naive": _state_naive, "eager": _state_eager, "fused": _state_fused}
SUMS = {"naive": _sum_naive.segment_sum, "eager": _sum_eager.segment_sum, "fused": _sum_fused.segment_sum}


def to_state(vectors: Tensor, x: Tensor, ptr: Tensor, backend: Backend = "auto") -> Tensor:
    r"""What graphs remember of their nodes, :math:`U_g = P_g^\top X_g`.

    Args:
        vectors: P, [N, K].
        x: X, [N, C].
        ptr: First node of every graph and, last, N: [G + 1].
        backend: ``"naive"``, ``"eager"``, ``"fused"`` (Triton, without a look at sizes), or ``"auto"``: fused where it
            can be, else eager.

    Returns:
        U, [G, K, C], float32 for half precision.
    """
    check_shape("vectors", vectors, None, None)
    check_shape("x", x, vectors.shape[0], None)
    return STATES[_chosen(backend, ptr, vectors=vectors, x=x)].to_state(vectors, x, ptr)


def from_state(vectors: Tensor, state: Tensor, ptr: Tensor, backend: Backend = "auto") -> Tensor:
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
    return STATES[_chosen(backend, ptr, vectors=vectors, state=state)].from_state(vectors, state, ptr)


def segment_sum(x: Tensor, batch: Tensor, ptr: Tensor, backend: Backend = "auto") -> Tensor:
    r"""Sum over the nodes of every graph, :math:`s_g = \sum_{v \in g} x_v`; zero for a graph without nodes.

    Args:
        x: Node features, [N, C].
        batch: Graph number of every node, sorted, [N].
        ptr: The same as first nodes, [G + 1].
        backend: ``"naive"``, ``"eager"``, ``"fused"`` (Triton; repeats bit by bit on a GPU, which eager does not), or
            ``"auto"``: fused where it can be, else eager.

    Returns:
        s, [G, C].
    """
    check_shape("x", x, None, None)
    check_shape("batch", batch, x.shape[0])
    return SUMS[_chosen(backend, ptr, x=x)](x, batch, ptr)


def _chosen(backend: str, ptr: Tensor, **tensors: Tensor) -> str:
    check_shape("ptr", ptr, None)
    if ptr.shape[0] < 1:
        fail("ptr", "at least one element", "none")
    if takes_kernels(backend, **tensors):
        return "fused"
    return "eager" if backend == "auto" else backend
