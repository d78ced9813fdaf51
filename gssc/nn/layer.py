"""One layer: a local and a global part in parallel, then a feed-forward network."""

import inspect

from torch import Tensor, nn
from torch_geometric.nn import CGConv

from gssc.checks import check_positive, check_probability, fail
from gssc.nn.dropout import Dropout, dropout, dropout_mask
from gssc.nn.fused_norm import as_branch, fused_norm, norms_fuse
from gssc.nn.norm import NormName, apply_norm, make_norm
from gssc.nn.plain_modules import plain_linears
from gssc.ops import EdgePlan, new_seeds, relu_dropout
from gssc.ops.cpu_layer.feed_forward import feed_forward
from gssc.ops.plain import one_type_on_cpu


class GSSCLayer(nn.Module):
    r"""Local message passing beside a global convolution, with residuals, norms and a feed-forward network.

    .. math::
        h = \mathrm{norm}(x + \mathrm{drop}(\mathrm{local}(x))) + \mathrm{norm}(x + \mathrm{drop}(\mathrm{glob}(x))),
        \qquad \mathrm{out} = \mathrm{norm}(h + \mathrm{FFN}(h))

    with FFN: C → 2C → C. A part that is ``None`` is left out of the sum; at least one must be there. Where the local
    part adds the residual itself (``GatedGCN``, ``GATConv(residual=True)``, ``CGConv``), it is not added again.

    Args:
        channels: C, channels of nodes.
        local: ``GatedGCN``, a PyG convolution C → C for which these arguments are enough, or ``None``. It is called
            with ``x`` and ``edge_index`` and with those of ``edge_attr``, ``edge_weight``, ``node_mask``,
            ``edge_mask``, ``plan`` and ``need_edges`` that its ``forward`` takes; one that returns a pair returns new
            edge features.
        glob: ``GSSConv``, ``GlobalAttention``, or ``None``; called as
            ``glob(x, phi, vectors, batch, degree=..., ptr=...)``.
        dropout_local: Dropout after the local part.
        dropout_global: Dropout after the global part.
        dropout_ffn: Dropout inside and after the feed-forward network.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.

    Shapes:
        x [N, C], edge_index [2, E], phi [G, K, c], vectors [N, K], batch [N] -> x [N, C], edge_attr as given or
        updated

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GATConv
        >>> layer = GSSCLayer(8, local=GATConv(8, 8))
        >>> x, edge_attr = layer(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]]))
        >>> x.shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        channels: int,
        local: nn.Module | None = None,
        glob: nn.Module | None = None,
        dropout_local: float = 0.0,
        dropout_global: float = 0.0,
        dropout_ffn: float = 0.0,
        norm: NormName = "batch",
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        if local is None and glob is None:
            fail("local", "a convolution, or None only where glob is given", "None for both")
        for name, p in (
            ("dropout_local", dropout_local),
            ("dropout_global", dropout_global),
            ("dropout_ffn", dropout_ffn),
        ):
            check_probability(name, p)
        self.channels = channels
        self.local, self.glob = local, glob
        self.dropout_local, self.dropout_global = dropout_local, dropout_global
        self.norm_local = make_norm(norm, channels) if local is not None else None
        self.norm_global = make_norm(norm, channels) if glob is not None else None
        self.feed_forward = nn.Sequential(
            nn.Linear(channels, 2 * channels),
            nn.ReLU(),
            Dropout(dropout_ffn),
            nn.Linear(2 * channels, channels),
            Dropout(dropout_ffn),
        )
        self.norm_ffn = make_norm(norm, channels)
        self._local_takes = _arguments(local)
        self._local_adds_residual = bool(getattr(local, "residual", False)) or isinstance(local, CGConv)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        phi: Tensor | None = None,
        vectors: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        degree: Tensor | None = None,
        ptr: Tensor | None = None,
        node_mask: Tensor | None = None,
        edge_mask: Tensor | None = None,
        plan: EdgePlan | None = None,
        need_edges: bool = True,
        seed: Tensor | None = None,
        gains: tuple[Tensor, Tensor | None] | None = None,
        largest: int | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Node features and edge features after the layer; arguments as in ``GSSConv`` and PyG convolutions.

        ``node_mask`` [N] and ``edge_mask`` [E] (True = real) keep the rows of a padded batch out of the statistics.
        ``plan`` is ``gssc.ops.edge_plan(edge_index, N)`` for local parts that have kernels, which else make it anew.
        ``need_edges=False`` allows a local part to leave new edge features out. ``seed`` is one row of
        ``gssc.ops.new_seeds``, for dropout where norms are fused (on a GPU); without it the layer draws its own.
        ``gains`` are handed to a ``GSSConv``, ``largest`` to a ``GlobalAttention``.
        """
        parts: list[tuple[Tensor, nn.Module, float, bool]] = []
        if self.local is not None and self.norm_local is not None:
            given = {
                "edge_attr": edge_attr,
                "edge_weight": edge_weight,
                "node_mask": node_mask,
                "edge_mask": edge_mask,
                "plan": plan,
                "need_edges": need_edges,
            }
            taken = {name: given[name] for name in self._local_takes if given[name] is not None}
            h = self.local(x, edge_index, **taken)
            if isinstance(h, tuple):
                h, edge_attr = h
            parts.append((h, self.norm_local, self.dropout_local, not self._local_adds_residual))
        if self.glob is not None and self.norm_global is not None:
            known = {name: value for name, value in (("gains", gains), ("largest", largest)) if value is not None}
            h = self.glob(x, phi, vectors, batch, degree=degree, ptr=ptr, **known)
            parts.append((h, self.norm_global, self.dropout_global, True))
        norms = [self.norm_local, self.norm_global, self.norm_ffn]
        if norms_fuse(norms, self.training, x, *(h for h, *_ in parts)):
            return self._finish_fused(x, parts, node_mask, seed), edge_attr
        return self._finish(x, parts, node_mask), edge_attr

    def _finish(self, x: Tensor, parts: list[tuple[Tensor, nn.Module, float, bool]], mask: Tensor | None) -> Tensor:
        """Residuals and norms of the parts, their sum, and the feed-forward network."""
        normed = []
        for h, norm, p, residual in parts:
            if residual:
                h = dropout(h, p, self.training, residual=x)
            normed.append(apply_norm(norm, h, mask))
        h = normed[0] + normed[1] if len(normed) == 2 else normed[0]
        return apply_norm(self.norm_ffn, self._fed_forward(h), mask)

    def _fed_forward(self, h: Tensor) -> Tensor:
        """The residual and what the feed-forward network makes of it."""
        inner, drop, outer = self.feed_forward[0], self.feed_forward[2], self.feed_forward[3]
        if not plain_linears(inner, outer) or not isinstance(drop, Dropout):
            return h + self.feed_forward(h)
        assert isinstance(inner, nn.Linear)
        assert isinstance(outer, nn.Linear)
        weights = (inner.weight, inner.bias, outer.weight, outer.bias)
        if not one_type_on_cpu(h, *weights):
            return h + self.feed_forward(h)
        if not self.training or drop.p == 0.0:
            return feed_forward(h, weights, None, None)
        # One draw for both.
        rows, width = h.shape[0], inner.out_features
        first, second = dropout_mask(h.new_empty(rows * (width + self.channels)), drop.p).split(
            (rows * width, rows * self.channels)
        )
        return feed_forward(h, weights, first.view(rows, width), second.view(rows, self.channels))

    def _finish_fused(
        self,
        x: Tensor,
        parts: list[tuple[Tensor, nn.Module, float, bool]],
        mask: Tensor | None,
        seed: Tensor | None,
    ) -> Tensor:
        """The same with three ops in place of some seventy. A part that adds the residual itself drops out itself."""
        inner, drop, outer = self.feed_forward[0], self.feed_forward[2], self.feed_forward[3]
        assert isinstance(drop, Dropout)
        p = drop.p if self.training else 0.0
        branches = [
            as_branch(norm, h, rate if self.training and residual else 0.0, residual)
            for h, norm, rate, residual in parts
        ]
        if seed is None and (p or any(branch.dropout for branch in branches)):
            seed = new_seeds(1, x.device)[0]
        h = fused_norm(self.norm_ffn, branches, x, mask, seed, 0)
        hidden = outer(relu_dropout(inner(h), p, seed, 2))
        return fused_norm(self.norm_ffn, [as_branch(self.norm_ffn, hidden, p)], h, mask, seed, 3)


def _arguments(local: nn.Module | None) -> tuple[str, ...]:
    """Which further tensors the convolution takes: named in ``forward``, and not switched off by edge_dim=None."""
    if local is None:
        return ()
    names = inspect.signature(local.forward).parameters
    takes = [
        name for name in ("edge_attr", "edge_weight", "node_mask", "edge_mask", "plan", "need_edges") if name in names
    ]
    no_edges = any(getattr(local, name, 0) is None for name in ("edge_dim", "in_edge_channels"))
    if no_edges or (isinstance(local, CGConv) and local.dim == 0):
        takes = [name for name in takes if name != "edge_attr"]
    return tuple(takes)
