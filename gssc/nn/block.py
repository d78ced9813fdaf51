"""The layer in one piece, called like PyG's ``GPSConv``: φ and the convolution inside, one tensor out."""

from typing import Any

from torch import Tensor, nn

from gssc.checks import fail
from gssc.nn.gssconv import GSSConv
from gssc.nn.layer import GSSCLayer
from gssc.nn.local import Source
from gssc.nn.norm import NormName
from gssc.nn.phi import make_phi
from gssc.nn.reset import Resets
from gssc.ops.context import graph_context
from gssc.spectra.attached import SpectrumSource, find_spectrum


class GSSCBlock(Resets, nn.Module):
    r"""A `GSSCLayer` with its own φ and `GSSConv`, to stand where PyG's ``GPSConv`` stands.

    .. math:: \mathrm{out} = \mathrm{layer}(x, \phi(\lambda), P)

    Every block encodes the spectrum by a φ of its own, unless the network encodes it once and hands Φ to all of them.

    Args:
        channels: C, channels of nodes.
        conv: The local part, as for `GSSCLayer`: any PyG convolution C → C, or ``None``.
        phi: Encoding of eigenvalues as for `GSSC`: a name, a module, or a function that makes one of its channels; or
            ``None``: there is none inside, and every call brings Φ.
        phi_channels: c, channels of φ, where ``phi`` does not say it.
        dropout: Of all parts.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.
        return_edges: Return the edge features too, which ``conv`` (such as `GatedGCN`) has updated.
        options: Further arguments of `GSSConv`, such as ``kernel`` and ``self_term``.

    Shapes:
        x [N, C], edge_index [2, E], batch [N], edge_attr [E, ...] -> x [N, C], or with ``return_edges`` x and edge_attr

    Example:
        >>> import torch, gssc
        >>> from torch_geometric.data import Data
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> block = GSSCBlock(8, gssc.GINE(8))
        >>> block(torch.randn(3, 8), graph.edge_index, spectrum=gssc.LaplacianSpectrum(k=4)(graph)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        channels: int,
        conv: nn.Module | None = None,
        *,
        phi: str | Source | None = "deepset",
        phi_channels: int = 32,
        dropout: float = 0.0,
        norm: NormName = "batch",
        return_edges: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.phi = None if phi is None else make_phi(phi, phi_channels)
        glob = GSSConv(channels, phi_channels if self.phi is None else self.phi.channels, **options)
        self.layer = GSSCLayer(channels, conv, glob, dropout, dropout, dropout, norm)
        self.return_edges = return_edges

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        spectrum: SpectrumSource | None = None,
        phi: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        """Node features after the layer.

        Args:
            x: Node features, [N, C].
            edge_index: Edges, [2, E].
            batch: Graph number of every node, sorted, [N]; left out for one graph.
            edge_attr: For a ``conv`` that takes them.
            edge_weight: Likewise.
            spectrum: The ``Data`` or ``Batch`` that holds it, or (eigvals [G, K], eigvecs [N, K], eigmask [G, K]). It
                may be left out where ``batch`` comes from `gssc.DataLoader`, and brings the spectra along.
            phi: Φ [G, K, c], what a φ made of (eigvals, eigmask), for a block that has none.
        """
        spectra = find_spectrum(batch if spectrum is None else spectrum, x.shape[0])
        context = graph_context(
            x.shape[0], spectra.eigvals.shape[0], batch, edge_index,
            node_mask=spectra.node_mask, edge_mask=spectra.edge_mask,
        )  # fmt: skip
        if not self.return_edges:
            context.final = self.layer.local  # nobody reads its edges
        if (phi is None) == (self.phi is None):
            fail("phi", "Φ in every call, or a φ inside", "neither" if phi is None else "both")
        phi = self.phi(spectra.eigvals, spectra.eigmask) if self.phi is not None else phi
        x, edge_attr = self.layer(
            x, edge_index, phi, spectra.eigvecs, batch, edge_attr, edge_weight=edge_weight, context=context
        )
        return (x, edge_attr) if self.return_edges else x
