"""One layer: a local and a global part in parallel, then a feed-forward network."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import CGConv

from gssc.checks import check_positive, check_probability, fail
from gssc.nn.norm import NormName, make_norm
from gssc.nn.reset import Resets
from gssc.ops import Branch, dropout, residual_feed_forward, residual_norm
from gssc.ops.context import GraphContext, graph_context, number_of_graphs

LOCAL_ARGUMENTS = ("edge_attr", "edge_weight", "context")


class GSSCLayer(Resets, nn.Module):
    r"""Local message passing beside a global convolution, with residuals, norms and a feed-forward network.

    .. math::
        h = \mathrm{norm}(x + \mathrm{drop}(\mathrm{local}(x))) + \mathrm{norm}(x + \mathrm{drop}(\mathrm{glob}(x))),
        \qquad \mathrm{out} = \mathrm{norm}(h + \mathrm{FFN}(h))

    with FFN: C → 2C → C. A part that is ``None`` is left out of the sum; at least one must be there. Where the local
    part adds the residual itself (``GatedGCN``, ``GATConv(residual=True)``, ``CGConv``), it is not added again.

    Args:
        channels: C, channels of nodes.
        local: ``GatedGCN``, a PyG convolution C → C for which these arguments are enough, or ``None``. It is called
            with ``x`` and ``edge_index`` and with those of ``edge_attr``, ``edge_weight`` and ``context`` that its
            ``forward`` takes; one that returns a pair returns new edge features.
        glob: ``GSSConv``, ``SoftmaxAttention``, any module of yours that is called as
            ``glob(x, phi, vectors, batch, context=context)`` and returns [N, C], or ``None``.
        dropout_local: Dropout after the local part.
        dropout_global: Dropout after the global part.
        dropout_ffn: Dropout inside and after the feed-forward network.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.
        scale: What of the layer counts: x becomes x + scale · (layer(x) - x).
        plain: The local part alone: out = drop(ReLU(norm(local(x)))), or local(x) where it adds the residual itself.

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
        scale: float = 1.0,
        plain: bool = False,
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        if local is None and glob is None:
            fail("local", "a convolution, or None only where glob is given", "None for both")
        if plain and (local is None or glob is not None):
            fail("plain", "False, unless there is a local part alone", True)
        for name, p in zip(("local", "global", "ffn"), (dropout_local, dropout_global, dropout_ffn), strict=True):
            check_probability(f"dropout_{name}", p)
        self.channels, self.scale, self.plain = channels, scale, plain
        self.local, self.glob = local, glob
        self.dropout_local, self.dropout_global = dropout_local, dropout_global
        self.norm_local = make_norm(norm, channels) if local is not None else None
        self.norm_global = make_norm(norm, channels) if glob is not None else None
        if not plain:
            self.feed_forward = FeedForward(channels, dropout_ffn)
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
        context: GraphContext | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Node features and edge features after the layer; arguments as in ``GSSConv`` and PyG convolutions.

        ``context`` is what the layers of a model share, see ``gssc.graph_context``; without it the layer makes its own.
        """
        if context is None:
            context = graph_context(x.shape[0], number_of_graphs(phi, batch), batch, edge_index, degree=degree)
        mask, seed = context.node_mask, context.seeds.get(self)
        if getattr(self.glob, "reads_edges", False):
            context.edge_attr = edge_attr
        settings: dict[str, Any] = {"training": self.training, "seed": seed}
        branches = []
        arriving = None if self.local is None else context.begin_extend(x)  # while the global part is computed
        if self.glob is not None and self.norm_global is not None:
            h = self.glob(x, phi, vectors, batch, context=context)
            branches.append(Branch(h, self.norm_global, self.dropout_global))
        if self.local is not None and self.norm_local is not None and arriving is not None:
            extended, around = arriving()
            features: dict[str, Any] = {"edge_attr": edge_attr, "edge_weight": edge_weight, "context": around}
            for name, value in list(features.items()):
                if value is None or name not in self._local_takes:
                    del features[name]
            h = self.local(extended, edge_index, **features)
            h, edge_attr = h if isinstance(h, tuple) else (h, edge_attr)
            h = h if around is context else h[: context.nodes]
            # One that adds the residual itself drops out itself.
            dropout = 0.0 if self._local_adds_residual else self.dropout_local
            branches.insert(0, Branch(h, self.norm_local, dropout, not self._local_adds_residual))
        if self.plain:
            adds, alone = self._local_adds_residual, [branch._replace(residual=False) for branch in branches]
            return h if adds else residual_norm(None, alone, mask, activation=True, **settings), edge_attr
        h = residual_norm(x, branches, mask, **settings)
        out = residual_feed_forward(h, self.feed_forward, self.norm_ffn, mask, site=2, **settings)
        return out if self.scale == 1.0 else torch.lerp(x, out, self.scale), edge_attr


class FeedForward(Resets, nn.Sequential):
    """W₂ drop(ReLU(W₁ h + b₁)) + b₂ with C → 2C → C; the dropout after it is that of the residual it goes into."""

    def __init__(self, channels: int, dropout: float) -> None:
        inner, outer = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        super().__init__(inner, nn.ReLU(), nn.Dropout(dropout), outer, nn.Dropout(dropout))

    def forward(self, h: Tensor) -> Tensor:
        return self[3](dropout(self[0](h).relu(), self[2].p, self.training))  # type: ignore[arg-type]


def _arguments(local: nn.Module | None) -> tuple[str, ...]:
    """Which further tensors the convolution takes: named in ``forward``, and not switched off by edge_dim=None."""
    if local is None:
        return ()
    names = inspect.signature(local.forward).parameters
    takes = [name for name in LOCAL_ARGUMENTS if name in names]
    no_edges = any(getattr(local, name, 0) is None for name in ("edge_dim", "in_edge_channels"))
    if no_edges or (isinstance(local, CGConv) and local.dim == 0):
        takes = [name for name in takes if name != "edge_attr"]
    return tuple(takes)
