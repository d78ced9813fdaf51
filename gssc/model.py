"""The whole model: encoders → φ once → layers → head."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gssc.checks import check_choice, check_positive, check_shape, fail
from gssc.nn import (
    DeepSetPhi,
    ElementwisePhi,
    FeatureEncoder,
    GlobalAttention,
    GraphHead,
    GSSCLayer,
    GSSConv,
    MLPHead,
    Phi,
    PolynomialPhi,
    RandomWalkEncoder,
    SpectralDiagonalEncoder,
    TransformerPhi,
)
from gssc.nn.encoders import EmbeddingInit, Features
from gssc.nn.gains import gains_of_all
from gssc.nn.gssconv import Kernel
from gssc.nn.heads import HEAD_FORMS, LEVELS, HeadForm, Level, Pool
from gssc.nn.local import LOCALS, Local, make_local
from gssc.nn.norm import NormName
from gssc.nn.recompute import recomputed
from gssc.ops import batch_to_ptr, edge_plan, new_seeds
from gssc.ops.plain import is_plain_cpu
from gssc.ops.triton_support import can_fuse
from gssc.padding import blank, check_masks, check_padding
from gssc.spectra.packed import edges_of

Global = Literal["gssc", "gsc", "attention", "none"]
GLOBALS = ("gssc", "gsc", "attention", "none")
PHIS: dict[str, Callable[[int], Phi]] = {
    "deepset": DeepSetPhi,
    "elementwise": ElementwisePhi,
    "polynomial": PolynomialPhi,
    "transformer": TransformerPhi,
}


class GSSC(nn.Module):
    """Message passing and graph state space convolutions, for predictions of nodes or of graphs.

    Encoders embed node and edge features, φ encodes the spectrum once for all layers, each layer is a ``GSSCLayer``,
    and a head reads the nodes out. In eval mode the prediction for a graph does not depend on the others in its batch.

    Args:
        out_channels: Number of outputs per node or graph.
        channels: C, width of the model.
        layers: Number of layers.
        node_features: D for continuous node features [N, D]; vocabulary sizes for categorical ones [N, columns];
            ``None`` for graphs without node features, or to ignore them.
        edge_features: Likewise for edges. Of the local parts ``"gatedgcn"``, ``"gine"``, ``"gat"`` and ``"pna"`` read
            them.
        embedding_init: First values of the embeddings of categories, ``"normal"`` or ``"xavier"``, see
            ``gssc.nn.FeatureEncoder``.
        rwse: Number of random-walk steps in ``data.rwse`` to concatenate to the node embedding; 0 for none.
        rwse_channels: Channels of that encoding, taken from the ``channels`` of the embedding.
        diagonal_channels: Channels of the invariant spectral encoding (P⊙P)Φ, taken likewise; 0 for none.
        local: Message passing: ``"gatedgcn"``, ``"gine"``, ``"gin"``, ``"gcn"``, ``"gat"``, ``"pna"`` or ``"none"``.
        glob: Global part: ``"gssc"``, ``"gsc"`` (graph spectral convolution: φ elementwise, no self term),
            ``"attention"`` (softmax) or ``"none"``.
        phi: Encoding of eigenvalues: ``"deepset"``, ``"elementwise"``, ``"polynomial"`` or ``"transformer"``.
        phi_channels: c, channels of φ; ``None`` means C.
        kernel: ``"channel"`` or ``"shared"``, see ``GSSConv``.
        selective: Data-dependent positions, see ``GSSConv``.
        normalize: Tame selection, see ``GSSConv``.
        self_term: Keep the self term, see ``GSSConv``.
        degree_scaling: Scale features by degree before the convolution, see ``GSSConv``.
        out_proj: Linear after the global term, see ``GSSConv``.
        heads: Heads of ``glob="attention"``.
        dropout_local: Dropout of the local part.
        dropout_global: Dropout of the global part.
        dropout_ffn: Dropout of the feed-forward network.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.
        level: ``"graph"`` or ``"node"``.
        pool: ``"sum"``, ``"mean"`` or ``"max"`` of nodes, for ``level="graph"``.
        head: The MLP at the end: ``"halving"``, ``"wide"`` or ``"linear"``, see ``gssc.nn.MLPHead``.
        jumping_knowledge: Hand the concatenated outputs of all layers to the head.
        degree_histogram: Of the training set, how many nodes have 0, 1, 2, … incoming edges: for ``local="pna"``,
            which needs it.
        recompute: For graphs that hardly fit: 0 keeps what the backward pass of every layer needs; 1 keeps only the
            inputs of layers and computes each layer again; g > 1 keeps those of groups of g layers, and those inside a
            group while it is its turn. With L layers, L, then about L/g + g tensors of edge features are kept; g > 1
            costs up to one more forward pass. The results are the same.

    Example:
        >>> from torch_geometric.data import Data
        >>> from gssc import LaplacianSpectrum, model_inputs
        >>> path = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
        >>> model = GSSC(out_channels=1, channels=8, layers=2, node_features=3)
        >>> model(**model_inputs(LaplacianSpectrum(k=4)(path))).shape
        torch.Size([1, 1])
    """

    def __init__(
        self,
        out_channels: int,
        channels: int = 64,
        layers: int = 4,
        *,
        node_features: Features = None,
        edge_features: Features = None,
        embedding_init: EmbeddingInit = "normal",
        rwse: int = 0,
        rwse_channels: int = 28,
        diagonal_channels: int = 0,
        local: Local = "gatedgcn",
        glob: Global = "gssc",
        phi: Literal["deepset", "elementwise", "polynomial", "transformer"] = "deepset",
        phi_channels: int | None = None,
        kernel: Kernel = "channel",
        selective: bool = False,
        normalize: bool = True,
        self_term: bool = True,
        degree_scaling: bool = False,
        out_proj: bool = False,
        heads: int = 4,
        dropout_local: float = 0.0,
        dropout_global: float = 0.0,
        dropout_ffn: float = 0.0,
        norm: NormName = "batch",
        level: Level = "graph",
        pool: Pool = "mean",
        head: HeadForm = "halving",
        jumping_knowledge: bool = False,
        degree_histogram: Sequence[int] | None = None,
        recompute: int = 0,
    ) -> None:
        super().__init__()
        for name, number in (("out_channels", out_channels), ("channels", channels), ("layers", layers)):
            check_positive(name, number)
        for name, number in (
            ("rwse", rwse),
            ("rwse_channels", rwse_channels),
            ("diagonal_channels", diagonal_channels),
        ):
            if number != 0:
                check_positive(name, number)
        check_choice("local", local, LOCALS)
        check_choice("glob", glob, GLOBALS)
        check_choice("phi", phi, PHIS)
        check_choice("level", level, LEVELS)
        check_choice("head", head, HEAD_FORMS)
        self.level, self.local, self.glob, self.degree_scaling = level, local, glob, degree_scaling
        self.jumping_knowledge = jumping_knowledge
        self.dropouts = any((dropout_local, dropout_global, dropout_ffn))
        if recompute:
            check_positive("recompute", recompute)
        self.recompute = recompute

        spectral = glob in ("gssc", "gsc")
        phi_channels = channels if phi_channels is None else phi_channels
        uses_phi = spectral or diagonal_channels > 0
        self.phi = PHIS["elementwise" if glob == "gsc" else phi](phi_channels) if uses_phi else None

        extra = (rwse_channels if rwse else 0) + diagonal_channels
        if extra >= channels:
            fail("rwse_channels + diagonal_channels", f"less than channels = {channels}", extra)
        self.node_encoder = FeatureEncoder(node_features, channels - extra, "x", embedding_init)
        self.edge_encoder = (
            FeatureEncoder(edge_features, channels, "edge_attr", embedding_init) if edge_features is not None else None
        )
        self.rwse_encoder = RandomWalkEncoder(rwse, rwse_channels) if rwse else None
        self.diagonal_encoder = SpectralDiagonalEncoder(phi_channels, diagonal_channels) if diagonal_channels else None

        def make_global() -> nn.Module | None:
            if spectral:
                return GSSConv(
                    channels,
                    phi_channels,
                    kernel=kernel,
                    selective=selective and glob == "gssc",
                    normalize=normalize,
                    self_term=self_term and glob == "gssc",
                    degree_scaling=degree_scaling,
                    out_proj=out_proj,
                )
            return GlobalAttention(channels, heads) if glob == "attention" else None

        self.layers = nn.ModuleList(
            GSSCLayer(
                channels,
                local=make_local(local, channels, dropout_local, norm, self.edge_encoder is not None, degree_histogram),
                glob=make_global(),
                dropout_local=dropout_local,
                dropout_global=dropout_global,
                dropout_ffn=dropout_ffn,
                norm=norm,
            )
            for _ in range(layers)
        )
        width = channels * layers if jumping_knowledge else channels
        self.head = (
            GraphHead(width, out_channels, pool, head) if level == "graph" else MLPHead(width, out_channels, head)
        )

    def forward(
        self,
        x: Tensor | None,
        edge_index: Tensor,
        eigvals: Tensor | None = None,
        eigvecs: Tensor | None = None,
        eigmask: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        rwse: Tensor | None = None,
        num_graphs: int | None = None,
        num_nodes: int | None = None,
        node_mask: Tensor | None = None,
        edge_mask: Tensor | None = None,
        ptr: Tensor | None = None,
        largest: int | None = None,
    ) -> Tensor:
        """Predict.

        A batch may be padded to a static shape: with further graphs at its end, their nodes and the edges among them
        marked False in ``node_mask`` and ``edge_mask``. Predictions, gradients and statistics of the real graphs are
        those of the batch without them (but for random numbers of dropout). What ``x``, ``edge_attr`` and ``rwse``
        hold in padding rows is not read; rows of ``eigvecs`` must be zero there, ``eigmask`` False.

        Args:
            x: Node features as declared by ``node_features``, or ``None``.
            edge_index: Edges, [2, E].
            eigvals: Eigenvalues, [G, K]; with ``eigvecs`` and ``eigmask`` as ``LaplacianSpectrum`` makes them. Not
                needed where neither the global part nor an encoding uses them.
            eigvecs: Eigenvectors, [N, K].
            eigmask: Valid frequencies, [G, K].
            batch: Graph number of every node, sorted, [N]; left out for one graph.
            edge_attr: Edge features as declared by ``edge_features``.
            rwse: Return probabilities, [N, steps].
            num_graphs: G, needed only where ``batch`` is given without ``eigvals``.
            num_nodes: N, needed only where neither ``x`` nor ``eigvecs`` is given.
            node_mask: Real nodes of a padded batch, [N]; ``None`` where all are.
            edge_mask: Real edges of a padded batch, [E]; ``None`` where all are.
            ptr: First node of every graph and, last, N, [G + 1]: spares the model counting them in ``batch``, which is
                then trusted to agree.
            largest: A number of nodes that no graph exceeds (but those of padding): spares attention asking the device
                for their sizes, at the price of padding all graphs to it.

        Returns:
            [G, out] or [N, out]; rows of padding graphs and nodes mean nothing.
        """
        nodes = _number_of_nodes(x, eigvecs, num_nodes)
        graphs = _number_of_graphs(eigvals, batch, num_graphs)
        check_masks(node_mask, edge_mask, nodes, edge_index.shape[-1])
        x, rwse, edge_attr = blank(x, node_mask), blank(rwse, node_mask), blank(edge_attr, edge_mask)
        if not torch.compiler.is_compiling():
            _check_values(x, edge_index, edge_attr, rwse, nodes, graphs)
            self._check_types(x=x, edge_attr=edge_attr, rwse=rwse, eigvals=eigvals, eigvecs=eigvecs)
            if node_mask is not None and node_mask.device.type == "cpu":
                check_padding(node_mask, edge_mask, edge_index, batch)
            if num_graphs not in (None, graphs):
                fail("eigvals", f"one row for each of num_graphs = {num_graphs} graphs", graphs)
        device = edge_index.device
        if ptr is None:
            ptr = batch_to_ptr(batch, nodes, graphs, device)
        check_shape("ptr", ptr, graphs + 1)

        phi: Tensor | None = None
        if self.phi is not None:
            if eigvals is None or eigvecs is None or eigmask is None:
                fail("eigvals", "eigvals, eigvecs and eigmask (apply gssc.LaplacianSpectrum to the data)", "None")
            check_shape("eigvecs", eigvecs, nodes, eigvals.shape[1])
            phi = self.phi(eigvals, eigmask)

        pieces = [self.node_encoder(x, nodes)]
        if self.rwse_encoder is not None:
            if rwse is None:
                fail("rwse", "random-walk encodings (apply gssc.RandomWalkSE to the data)", "None")
            check_shape("rwse", rwse, nodes, self.rwse_encoder.linear.in_features)
            pieces.append(self.rwse_encoder(rwse, node_mask))
        if self.diagonal_encoder is not None:
            pieces.append(self.diagonal_encoder(phi, eigvecs, ptr, node_mask))
        h = torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]

        degree: Tensor | None = None
        if self.degree_scaling:
            ones = torch.ones(edge_index.shape[1], dtype=h.dtype, device=device)
            degree = torch.zeros(nodes, dtype=h.dtype, device=device).index_add(0, edge_index[1], ones)

        masks = {"node_mask": node_mask, "edge_mask": edge_mask}
        on_gpu, on_cpu = can_fuse(h), is_plain_cpu(h, edge_index)
        # One plan for all layers, and only where they will ask for it.
        planned = (on_gpu and self.local in ("gatedgcn", "gine", "gcn")) or (on_cpu and self.local == "gine")
        plan = edge_plan(edge_index, nodes) if planned else None
        seeds = new_seeds(len(self.layers), device) if self.dropouts and self.training and on_gpu else None
        gains = self._gains(phi) if phi is not None and (on_gpu or on_cpu) else None
        shared: dict[str, Any] = {"degree": degree, "ptr": ptr, "plan": plan, **masks}
        if self.glob == "attention":
            shared["largest"] = largest

        def run(number: int, h: Tensor, e: Tensor | None) -> tuple[Tensor, Tensor | None]:
            own: dict[str, Any] = {"seed": None if seeds is None else seeds[number]}
            own |= {"gains": None if gains is None else gains[number]}
            last = number == len(self.layers) - 1
            return self.layers[number](h, edge_index, phi, eigvecs, batch, e, need_edges=not last, **own, **shared)

        # Handed over without a name, so that it can go as soon as the first layer has read it.
        outputs = self._through_layers(
            run, h, self.edge_encoder(edge_attr, edge_index.shape[1]) if self.edge_encoder is not None else None
        )
        h = outputs[-1]
        if self.jumping_knowledge:
            h = torch.cat(outputs, dim=1)
        return self.head(h, batch, graphs, ptr) if self.level == "graph" else self.head(h)

    def _through_layers(
        self, run: Callable[[int, Tensor, Tensor | None], tuple[Tensor, Tensor | None]], h: Tensor, e: Tensor | None
    ) -> list[Tensor]:
        """Node features after every layer; ``run`` is a layer by its number. See ``recompute``."""
        again = self.recompute if torch.is_grad_enabled() else 0

        def group(first: int, h: Tensor, e: Tensor | None) -> tuple[list[Tensor], Tensor | None]:
            outputs = []
            for number in range(first, min(first + max(again, 1), len(self.layers))):
                h, e = recomputed(run, self.layers[number], number, h, e) if again else run(number, h, e)
                outputs.append(h)
            return outputs, e

        outputs: list[Tensor] = []
        for first in range(0, len(self.layers), max(again, 1)):
            found, e = recomputed(group, self.layers, first, h, e) if again > 1 else group(first, h, e)
            h = found[-1]
            outputs += found
        return outputs

    def _check_types(self, **inputs: Tensor | None) -> None:
        """Fail where a product of inputs and weights would have two types of floating point."""
        weights = next(self.parameters()).dtype
        for name, tensor in inputs.items():
            if tensor is None or not tensor.is_floating_point() or tensor.dtype == weights:
                continue
            readers = {"x": self.node_encoder.linear, "edge_attr": self.edge_encoder, "rwse": self.rwse_encoder}
            if readers.get(name, self.phi) is not None and not torch.is_autocast_enabled(tensor.device.type):
                fail(name, f"{weights}, the type of the model's weights (data.apply, model.to)", tensor.dtype)

    def _gains(self, phi: Tensor) -> list[tuple[Tensor, Tensor | None]] | None:
        """Gains of all layers at once, where every layer has some and it is worth it."""
        convolutions = [layer.glob for layer in self.layers if isinstance(layer.glob, GSSConv)]
        return gains_of_all(convolutions, phi) if len(convolutions) == len(self.layers) else None


def model_inputs(data: Data) -> dict[str, Any]:
    """The arguments of ``GSSC.forward`` that a PyG ``Data`` or ``Batch`` holds: ``model(**model_inputs(data))``."""
    if not isinstance(data, Data):
        fail("data", "a torch_geometric.data.Data or Batch", type(data).__name__)
    names = ("x", "edge_index", "eigvals", "eigvecs", "eigmask", "batch", "edge_attr", "rwse")
    inputs: dict[str, Any] = {name: getattr(data, name, None) for name in names}
    inputs["edge_index"] = edges_of(data)
    if "node_mask" in data:  # a padded batch, see gssc.replay
        inputs |= {"node_mask": data.node_mask, "edge_mask": data.edge_mask, "ptr": data.ptr}
    graphs = data.num_graphs if inputs["batch"] is not None else 1
    return inputs | {"num_graphs": graphs, "num_nodes": data.num_nodes}


def _number_of_nodes(x: Tensor | None, eigvecs: Tensor | None, num_nodes: int | None) -> int:
    for tensor in (x, eigvecs):
        if tensor is not None:
            return tensor.shape[0]
    if num_nodes is None:
        fail("num_nodes", "the number of nodes, where neither x nor eigvecs tells it", "None")
    return num_nodes


def _number_of_graphs(eigvals: Tensor | None, batch: Tensor | None, num_graphs: int | None) -> int:
    if eigvals is not None:
        return eigvals.shape[0]
    if num_graphs is None and batch is not None:
        fail("num_graphs", "the number of graphs, where batch is given without eigvals", "None")
    return 1 if num_graphs is None else num_graphs


def _check_values(
    x: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    rwse: Tensor | None,
    nodes: int,
    graphs: int,
) -> None:
    """Checks that look at values: on the CPU only, where they do not make the program wait for a device."""
    check_shape("edge_index", edge_index, 2, None)
    if graphs < 1:
        fail("batch", "at least one graph", "an empty batch")
    if edge_index.device.type != "cpu":
        return
    if edge_index.numel() and not (int(edge_index.min()) >= 0 and int(edge_index.max()) < nodes):
        span = f"{int(edge_index.min())}..{int(edge_index.max())}"
        fail("edge_index", f"node numbers in 0..{nodes - 1}", span)
    for name, tensor in (("x", x), ("edge_attr", edge_attr), ("rwse", rwse)):
        if tensor is not None and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            fail(name, "finite numbers", f"{int((~torch.isfinite(tensor)).sum())} non-finite of {tensor.numel()}")
