"""What GatedGCN does on edges: gates, sums of messages, new edges."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch import bool as boolean

from gssc.checks import check_choice, check_probability, check_shapes, fail
from gssc.ops.context import EdgePlan, edge_plan, new_seeds
from gssc.ops.gated_gcn import naive, torch, triton
from gssc.ops.gated_gcn.naive import Inputs
from gssc.ops.norm import Branch, NormState, norm_state, residual_norm
from gssc.ops.op import unmodified
from gssc.ops.triton_support import BACKENDS, can_fuse, check_fusible

__all__ = ["gated_messages"]


def gated_messages(
    x: Tensor,
    tell: Sequence[nn.Module],
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    lin_edge: nn.Module | None = None,
    norm: nn.Module | None = None,
    *,
    mask: Tensor | None = None,
    residual: bool = True,
    eps: float = 1e-6,
    dropout: float = 0.0,
    training: bool = False,
    seed: Tensor | None = None,
    site: int = 0,
    plan: EdgePlan | Callable[[], EdgePlan] | None = None,
    need_edges: bool = True,
    norm_node: nn.Module | None = None,
    node_mask: Tensor | None = None,
    node_site: int = 0,
    own: int | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor | None]:
    r"""What GatedGCN does on edges, for edges from j to i, with t, s, n and a Linears of x.

    .. math::
        \ell_{ij} = t_i + s_j + \mathrm{lin}(e_{ij}), \qquad
        h_i = a_i + \frac{\sum_j \sigma(\ell_{ij}) \odot n_j}{\sum_j \sigma(\ell_{ij}) + \epsilon}, \qquad
        e'_{ij} = e_{ij} + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(\ell_{ij})))

    Args:
        x: Node features, [N, D].
        tell: Four Linears D → C, or what stands for them: to t, what a node tells the edges that enter it; to s, what
            it tells those that leave it; to n, what messages carry; and to a, what a node adds itself.
        edge_index: Edges, [2, E], in any order.
        edge_attr: e, [E, C]; ``None`` leaves out lin(e) and the residual.
        lin_edge: A Linear C → C, or what stands for one.
        norm: Normalisation of ℓ, whose running statistics move on, or ``None``.
        mask: Real edges of a padded batch, [E]: others stay out of the statistics of ``norm`` and get no update.
        residual: Add e.
        eps: ε.
        dropout: Probability of dropout, where ``training``.
        training: Whether to drop out. Whether statistics are those of the batch is up to ``norm``.
        seed: Of dropout, a row of ``new_seeds``; ``None``: drawn where it is needed. ``"torch"`` draws its own numbers.
        site: Number of the place of dropout: places with one seed need different ones.
        plan: ``edge_plan(edge_index, N)``, or a function that returns it; only the kernels ask for it, and make it
            where there is none.
        need_edges: Whether e' is needed.
        norm_node: With one, nodes are updated as well: :math:`x_i + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(h_i)))`
            (without x, if not ``residual``) comes in place of h.
        node_mask: Real nodes of a padded batch, [N], for ``norm_node``.
        node_site: Number of the place of their dropout.
        own: How many nodes come first that edges enter; the others only tell, and there is no h of them.
        backend: ``"naive"`` (edge by edge), ``"torch"`` (calls the modules), ``"triton"`` (e' is the only tensor of
            size E × C; results repeat bit by bit), or ``"auto"``: triton where it can be, else torch.

    Returns:
        h [N, C], and e' [E, C] or ``None`` where it is not needed.
    """
    if len(tell) != 4:
        fail("tell", "four modules, to t, s, n and a", len(tell))
    edges, channels = edge_index.shape[-1], getattr(tell[0], "out_features", None)
    check_shapes(
        ("x", x, (None, None)),
        ("edge_index", edge_index, (2, None)),
        ("edge_attr", edge_attr, (edges, channels)),
        ("mask", mask, (edges,)),
    )
    if mask is not None and mask.dtype != boolean:
        fail("mask", "a boolean tensor (True = real)", mask.dtype)
    if edge_attr is None:
        lin_edge = None
    elif lin_edge is None:
        fail("lin_edge", "a module where edge_attr is given", "None")
    check_probability("dropout", dropout)
    if backend == "triton":
        check_fusible(x=x, edge_attr=edge_attr)
    elif backend != "auto":
        check_choice("backend", backend, BACKENDS)
    state: NormState | None = None
    if backend == "triton" or (backend == "auto" and can_fuse(x, edge_attr)):
        usable, state = _for_kernels(lin_edge, norm)
        if backend == "triton" and not usable:
            fail("backend", "'torch' or 'auto' for a lin_edge or norm that must be called", "'triton'")
        backend = "triton" if usable else "torch"
    if not training:
        dropout = 0.0
    elif dropout and seed is None and backend in ("naive", "triton"):
        seed = new_seeds(1, x.device)[0]
    if not hasattr(norm, "synchronized"):  # others look at no other rows: what is padding does not matter to them
        mask = None
    inputs = Inputs(x, tell, edge_index, edge_attr, lin_edge, norm, mask, residual, eps, dropout, seed, site, own)
    if backend == "triton":
        if plan is None:
            plan = edge_plan(edge_index, x.shape[0])
        elif not isinstance(plan, EdgePlan):
            plan = plan()
        update = None
        known = None if norm_node is None or own is not None else norm_state(norm_node)
        if known is not None and (known.momentum is not None or not known.training) and known.training >= training:
            form = ((dropout, 0.0), (residual, False), True, node_site)
            update = triton.Update(known, node_mask, seed if dropout else None, form)
        new_nodes, new_edges, updated = triton.gated_messages(inputs, state, plan, need_edges, update)
        new_nodes = new_nodes if own is None else new_nodes[:own]
    else:
        updated = False
        new_nodes, new_edges = (naive if backend == "naive" else torch).gated_messages(inputs)
    if norm_node is not None and not updated:
        branch = Branch(new_nodes, norm_node, dropout, residual)
        settings: Any = {"training": training, "seed": seed, "site": node_site, "activation": True}
        new_nodes = residual_norm(x if own is None else x[:own], [branch], node_mask, **settings)
    return new_nodes, new_edges if need_edges else None


def _for_kernels(lin_edge: nn.Module | None, norm: nn.Module | None) -> tuple[bool, NormState | None]:
    """Whether the kernels can stand for these modules, and the state of the norm where there is one."""
    if not unmodified(lin_edge, bias=True):
        return False, None
    if unmodified(norm, kind=nn.Identity):
        return True, None
    state = norm_state(norm)
    return state is not None, state
