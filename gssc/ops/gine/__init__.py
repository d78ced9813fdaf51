"""Sums over the neighbours of a node: what GINE and GCN do on edges."""

from torch import Tensor

from gssc.checks import check_choice, check_shapes
from gssc.ops.edges.plan import EdgePlan, edge_plan
from gssc.ops.gine import naive, torch, triton
from gssc.ops.triton_support import can_fuse, check_fusible

__all__ = ["gine_messages", "neighbor_sum"]

BACKENDS = ("auto", "naive", "torch", "triton")


def gine_messages(
    x: Tensor,
    edge_attr: Tensor | None,
    edge_index: Tensor,
    plan: EdgePlan | None = None,
    backend: str = "auto",
    eps: Tensor | None = None,
) -> Tensor:
    r"""What GINE sums: :math:`h_i = (1 + \epsilon) x_i + \sum_j \mathrm{ReLU}(x_j + e_{ij})` over edges from j to i.

    Args:
        x: Node features, [N, C].
        edge_attr: Edge features, [E, C], or ``None`` for zeros.
        edge_index: Edges, [2, E], in any order.
        plan: ``edge_plan(edge_index, N)``, if there is one already. The kernels need it, and make it else; on a CPU
            sums are faster with it.
        backend: ``"naive"`` (edge by edge), ``"torch"``, ``"triton"`` (nothing of size E × C is stored but the gradient
            of e; results repeat bit by bit), or ``"auto"``: triton where it can be, else torch.
        eps: ε, one number; ``None`` leaves (1 + ε) x_i out.

    Returns:
        h, [N, C].
    """
    check_shapes(
        ("x", x, (None, None)),
        ("edge_index", edge_index, (2, None)),
        ("edge_attr", edge_attr, (edge_index.shape[-1], x.shape[-1])),
    )
    if backend == "triton":
        check_fusible(x=x, edge_attr=edge_attr)
    elif backend == "auto" and can_fuse(x, edge_attr):
        backend = "triton"
    if backend == "triton":
        plan = edge_plan(edge_index, x.shape[0]) if plan is None else plan
        return triton.gine_messages(x, edge_attr, edge_index, plan, eps)
    if backend == "naive":
        return naive.gine_messages(x, edge_attr, edge_index, eps)
    if backend != "auto":
        check_choice("backend", backend, BACKENDS)
    return torch.gine_messages(x, edge_attr, edge_index, plan, eps)


def neighbor_sum(x: Tensor, edge_index: Tensor, plan: EdgePlan | None = None, backend: str = "auto") -> Tensor:
    r"""What GCN sums: :math:`h_i = \sum_j x_j` over edges from j to i.

    Its gradient is the same sum over the reversed edges. Arguments and result as of `gine_messages`.
    """
    check_shapes(("x", x, (None, None)), ("edge_index", edge_index, (2, None)))
    if backend == "triton":
        check_fusible(x=x)
    elif backend == "auto" and can_fuse(x):
        backend = "triton"
    if backend == "triton":
        return triton.neighbor_sum(x, edge_plan(edge_index, x.shape[0]) if plan is None else plan)
    if backend == "naive":
        return naive.neighbor_sum(x, edge_index)
    if backend != "auto":
        check_choice("backend", backend, BACKENDS)
    return torch.neighbor_sum(x, edge_index, plan)
