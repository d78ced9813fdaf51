"""Message passing as ops: arguments checked, backend chosen."""

from typing import Literal

import torch
from torch import Tensor

from gssc.checks import check_choice, check_probability, check_shape, fail
from gssc.ops.edges.plan import EdgePlan, edge_plan
from gssc.ops.gated_gcn import naive as _gated_naive
from gssc.ops.gated_gcn import torch as _gated_eager
from gssc.ops.gated_gcn import triton as _gated_fused
from gssc.ops.gated_gcn.types import EdgeNorm, GatedOutput, Origin
from gssc.ops.gine import naive as _gine_naive
from gssc.ops.gine import planned as _gine_planned
from gssc.ops.gine import torch as _gine_eager
from gssc.ops.gine import triton as _gine_fused
from gssc.ops.neighbor_sum import naive as _sum_naive
from gssc.ops.neighbor_sum import torch as _sum_eager
from gssc.ops.neighbor_sum import triton as _sum_fused
from gssc.ops.triton_support import can_fuse, check_fusible

Backend = Literal["auto", "naive", "eager", "fused"]
BACKENDS = ("auto", "naive", "eager", "fused")


def gine_messages(
    x: Tensor,
    edge_attr: Tensor | None,
    edge_index: Tensor,
    plan: EdgePlan | None = None,
    backend: Backend = "auto",
    eps: Tensor | None = None,
) -> Tensor:
    r"""What GINE sums: :math:`h_i = \sum_j \mathrm{ReLU}(x_j + e_{ij})` over edges from j to i.

    Args:
        x: Node features, [N, C].
        edge_attr: Edge features, [E, C], or ``None`` for zeros.
        edge_index: Edges, [2, E], in any order.
        plan: ``edge_plan(edge_index, N)``, if there is one already; only ``"fused"`` needs it, ``"eager"`` on a CPU
            is faster with it.
        backend: ``"naive"``, ``"eager"``, ``"fused"`` (Triton, nothing of size E × C is stored), or ``"auto"``: fused
            where it can be, else eager.
        eps: ε, one number, to add (1 + ε) x_i; ``None`` to leave that out.

    Returns:
        h, [N, C].
    """
    check_shape("x", x, None, None)
    check_shape("edge_index", edge_index, 2, None)
    if edge_attr is not None:
        check_shape("edge_attr", edge_attr, edge_index.shape[1], x.shape[1])
    if takes_kernels(backend, x=x, edge_attr=edge_attr):
        apart = eps is not None and eps.requires_grad  # the kernels do not differentiate it
        plan = _plan(plan, edge_index, x.shape[0])
        messages = _gine_fused.gine_messages(x, edge_attr, edge_index, plan, None if apart else eps)
        return messages if eps is None or not apart else messages + (1 + eps) * x
    if backend != "naive" and plan is not None and _gine_planned.fits(x, edge_attr, edge_index):
        messages = _gine_planned.gine_messages(x, edge_attr, edge_index, plan)
    else:
        messages = (_gine_naive if backend == "naive" else _gine_eager).gine_messages(x, edge_attr, edge_index)
    return messages if eps is None else messages + (1 + eps) * x


def gated_gcn(
    target: Tensor,
    source: Tensor | None,
    neighbor: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm: EdgeNorm | None = None,
    mask: Tensor | None = None,
    residual: bool = True,
    eps: float = 1e-6,
    dropout: float = 0.0,
    plan: EdgePlan | None = None,
    need_edges: bool = True,
    origin: Origin | None = None,
    backend: Backend = "auto",
) -> GatedOutput:
    r"""What GatedGCN does on edges, for edges from j to i.

    .. math::
        \ell_{ij} = t_i + s_j + W e_{ij} + b, \qquad
        h_i = \frac{\sum_j \sigma(\ell_{ij}) \odot n_j}{\sum_j \sigma(\ell_{ij}) + \epsilon}, \qquad
        e'_{ij} = e_{ij} + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(\ell_{ij})))

    Args:
        target: t, what a node tells the edges that enter it, [N, C]; or, with ``source`` and ``neighbor`` None, t, s,
            n and a side by side, [N, 4C]: then a_i + h_i is returned in place of h_i, and one product makes all four.
        source: s, what it tells those that leave it, [N, C].
        neighbor: n, what messages carry, [N, C].
        edge_index: Edges, [2, E], in any order.
        edge_attr: e, [E, C]; ``None`` (with ``weight`` and ``bias``) leaves out We + b and the residual.
        weight: W, [C, C], in the layout of ``nn.Linear``.
        bias: b, [C].
        norm: Batch normalisation of ℓ; ``None`` for none.
        mask: Real edges of a padded batch, [E]: with ``norm``, others stay out of its statistics and get no update.
        residual: Add e.
        eps: ε.
        dropout: Probability of dropout, 0 outside of training. ``"fused"`` draws other numbers than ``"eager"``.
        plan: ``edge_plan(edge_index, N)``, if there is one already; only ``"fused"`` needs it.
        need_edges: Whether e' is needed; where it is not, ``"fused"`` returns [0, C] in its place.
        origin: Where t, s and n come from, so that ``"fused"`` can compute them anew instead of keeping them. They
            alone are differentiated; that they are what ``origin`` says is not checked. Not for [N, 4C].
        backend: ``"naive"`` (no dropout), ``"eager"``, ``"fused"`` (Triton, e' is the only tensor of size E × C), or
            ``"auto"``: fused where it can be, else eager.

    Returns:
        h [N, C], e' [E, C], and the moments of ℓ where ``norm`` needed them.
    """
    check_shape("target", target, None, None)
    check_shape("edge_index", edge_index, 2, None)
    check_probability("dropout", dropout)
    nodes, channels = target.shape
    edges = edge_index.shape[1]
    if (source is None) != (neighbor is None):
        fail("neighbor", "given exactly when source is", "only one of the two")
    if source is None or neighbor is None:
        if channels % 4:
            fail("target", "t, s, n and a side by side, [N, 4C], where source is None", list(target.shape))
        if origin is not None:
            fail("origin", "None where source is", "given")
        channels //= 4
    else:
        check_shape("source", source, nodes, channels)
        check_shape("neighbor", neighbor, nodes, channels)
    for name, part, shape in (
        ("edge_attr", edge_attr, (edges, channels)),
        ("weight", weight, (channels, channels)),
        ("bias", bias, (channels,)),
    ):
        if (part is None) != (edge_attr is None):
            fail(name, "given exactly when edge_attr is", "only one of the two")
        if part is not None:
            check_shape(name, part, *shape)
    if mask is not None:
        check_shape("mask", mask, edges)
        if mask.dtype != torch.bool:
            fail("mask", "a boolean tensor (True = real)", mask.dtype)
    if norm is not None:
        for name in ("scale", "shift", "mean", "variance"):
            check_shape(f"norm.{name}", getattr(norm, name), channels)
    others = (edge_index, edge_attr, weight, bias, norm, mask, residual, eps)
    if takes_kernels(backend, target=target, source=source, neighbor=neighbor, edge_attr=edge_attr):
        plan = _plan(plan, edge_index, nodes)
        return _gated_fused.gated_gcn(target, source, neighbor, *others, dropout, plan, need_edges, origin)
    own = None
    if source is None or neighbor is None:
        target, source, neighbor, own = target.chunk(4, 1)
    if backend == "naive":
        if dropout:
            fail("dropout", "0.0 for backend='naive'", dropout)
        out = _gated_naive.gated_gcn(target, source, neighbor, *others)
    else:
        out = _gated_eager.gated_gcn(target, source, neighbor, *others, dropout)
    return out if own is None else out._replace(nodes=own + out.nodes)


def neighbor_sum(x: Tensor, edge_index: Tensor, plan: EdgePlan | None = None, backend: Backend = "auto") -> Tensor:
    r"""What GCN sums: :math:`h_i = \sum_j x_j` over edges from j to i.

    Args:
        x: Node features, [N, C].
        edge_index: Edges, [2, E], in any order.
        plan: ``edge_plan(edge_index, N)``, if there is one already; only ``"fused"`` needs it.
        backend: ``"naive"``, ``"eager"``, ``"fused"`` (Triton, nothing of size E × C is stored), or ``"auto"``: fused
            where it can be, else eager.

    Returns:
        h, [N, C].
    """
    check_shape("x", x, None, None)
    check_shape("edge_index", edge_index, 2, None)
    if takes_kernels(backend, x=x):
        return _sum_fused.neighbor_sum(x, _plan(plan, edge_index, x.shape[0]))
    return (_sum_naive if backend == "naive" else _sum_eager).neighbor_sum(x, edge_index)


def takes_kernels(backend: str, **tensors: Tensor | None) -> bool:
    """Whether to take the fused form: where it is asked for, or can run with ``"auto"``. Checks that it can."""
    check_choice("backend", backend, BACKENDS)
    if backend == "fused":
        check_fusible(**tensors)
    return backend == "fused" or (backend == "auto" and can_fuse(*tensors.values()))


def _plan(plan: EdgePlan | None, edge_index: Tensor, nodes: int) -> EdgePlan:
    return edge_plan(edge_index, nodes) if plan is None else plan
