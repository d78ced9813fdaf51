"""The whole model: encoders → φ once → layers → head."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gssc.checks import check_choice, check_pairs, check_positive, check_shape, fail
from gssc.nn import (
    EdgeHead,
    EigenvectorEncoder,
    FeatureEncoder,
    GraphContext,
    GraphHead,
    GSSCLayer,
    GSSConv,
    MLPHead,
    RandomWalkEncoder,
    SoftmaxAttention,
    SpectralDiagonalEncoder,
    graph_context,
    joint_gains,
)
from gssc.nn.encoders import EmbeddingInit, Features, HeadForm, Level, Pool
from gssc.nn.gssconv import DegreeInit, Kernel
from gssc.nn.local import Local, Source, averaged, copies, make_locals
from gssc.nn.norm import NormName
from gssc.nn.phi import make_phi
from gssc.nn.recompute import recomputed_layers
from gssc.nn.reset import Resets
from gssc.nn.rivals import CARRYING, RIVALS, make_rival
from gssc.ops import dropout
from gssc.ops.context import undirected_degree
from gssc.ops.halo import Halo
from gssc.padding import blank
from gssc.spectra.attached import check_fresh
from gssc.spectra.packed import edges_of

Spectrum = tuple[Tensor | None, Tensor | None, Tensor | None]  # eigvals, eigvecs, eigmask
GLOBALS = ("gssc", "gsc", "attention", *RIVALS, "none")


class GSSC(Resets, nn.Module):
    """Message passing and graph state space convolutions, for predictions of nodes, of graphs or of pairs of nodes.

    Encoders embed node and edge features, φ encodes the spectrum once for all layers, each layer is a ``GSSCLayer``,
    and a head reads the nodes out. In eval mode the prediction for a graph does not depend on the others in its batch.

    Args:
        out_channels: Number of outputs per node, graph or pair of nodes.
        channels: C, width of the model.
        layers: Number of layers.
        node_features: D for continuous node features [N, D]; vocabulary sizes for categorical ones [N, columns];
            ``None`` for graphs without node features, or to ignore them.
        edge_features: Likewise for edges. Of the local parts ``"gatedgcn"``, ``"gine"``, ``"gat"`` and ``"pna"`` read
            them.
        embedding_init: First values of the embeddings of categories, ``"normal"`` or ``"xavier"``, see
            ``gssc.nn.FeatureEncoder``.
        edge_embedding: Where there are no edge features, one learned vector for all edges.
        rwse: Number of random-walk steps in ``data.rwse`` to concatenate to the node embedding; 0 for none.
        rwse_channels: Channels of that encoding, taken from the ``channels`` of the embedding.
        diagonal_channels: Channels of the invariant spectral encoding (P⊙P)Φ, taken likewise; 0 for none.
        lappe_channels: Channels of ``gssc.nn.EigenvectorEncoder``, which depends on signs and bases of eigenvectors,
            taken likewise; 0 for none.
        local: Message passing: ``"gatedgcn"``, ``"gine"``, ``"gin"``, ``"gcn"``, ``"sage"``, ``"gat"``, ``"pna"`` or
            ``"none"``; or any PyG convolution C → C, as a module (copied for every layer) or as a function of
            ``channels``.
        glob: Global part: ``"gssc"``, ``"gsc"`` (graph spectral convolution: φ elementwise, no self term),
            ``"attention"`` (softmax), ``"none"``, or the global part of another paper, see ``gssc.nn.rivals``:
            ``"performer"``, ``"exphormer"``, ``"grit"``, ``"mamba"``, ``"sgformer"`` or ``"polynormer"``; or,
            likewise, a module or a function that makes one of ``channels``: anything called as
            ``glob(x, phi, vectors, batch, context=context)`` that returns [N, C], see ``docs/own_layers.md``.
        phi: Encoding of eigenvalues: ``"deepset"``, ``"elementwise"``, ``"polynomial"``, ``"transformer"`` or
            ``"specformer"``; or a module such as ``gssc.DiffusionPhi()``, called as ``phi(eigvals, eigmask)``, with an
            attribute ``channels``, or a function that makes one of ``phi_channels``.
        phi_channels: c, channels of φ; ``None`` means C, or those of the module ``phi``.
        kernel: ``"channel"`` or ``"shared"``, see ``GSSConv``.
        selective: Data-dependent positions, see ``GSSConv``.
        normalize: Tame selection, see ``GSSConv``.
        self_term: Keep the self term, see ``GSSConv``.
        degree_scaling: Scale features by degree before the convolution, see ``GSSConv``.
        out_proj: Linear after the global term, see ``GSSConv``.
        kernel_channels: Width over which a shared kernel sums, see ``GSSConv``.
        in_proj: Linears before the global term, see ``GSSConv``.
        degree_init: First values of the scale by degree, see ``GSSConv``.
        degree: Which degrees scale: ``"in"``, of the edges that enter a node, or ``"undirected"``, of its neighbours.
        heads: Heads of ``glob="attention"`` and of those of other papers that have some.
        smooth: ``"ends"`` frames the layers like those of a two-layer GCN: what the encoders say is averaged over
            neighbours, then ReLU and dropout; and so are outputs of nodes averaged. Their Linears begin as PyG's
            ``GCNConv`` does. ``"none"``: they are not.
        layer_scale: What of every layer counts, see ``GSSCLayer``.
        dropout_input: Dropout of continuous node features, or of the embedding of categories.
        dropout_local: Dropout of the local part.
        dropout_global: Dropout of the global part.
        dropout_ffn: Dropout of the feed-forward network.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.
        level: ``"graph"``, ``"node"`` or ``"edge"``: the pairs of nodes in ``edge_label_index``, see
            ``gssc.nn.EdgeHead``.
        pool: ``"sum"``, ``"mean"`` or ``"max"`` of nodes, for ``level="graph"``.
        head: The MLP at the end: ``"halving"``, ``"wide"``, ``"linear"``, ``"normalized-1"`` or ``"normalized-2"``, see
            ``gssc.nn.MLPHead``.
        ordered_pairs: For ``level="edge"``: (u, v) and (v, u) are different pairs; else both get the same output.
        jumping_knowledge: Hand the concatenated outputs of all layers to the head; its last two forms narrow them.
        degree_histogram: Of the training set, how many nodes have 0, 1, 2, … incoming edges: for ``local="pna"``,
            which needs it.
        recompute: For graphs that hardly fit: 0 keeps what the backward pass of every layer needs; 1 keeps only the
            inputs of layers and computes each layer again; g > 1 keeps those of groups of g layers, and those inside a
            group while it is its turn. With L layers, L, then about L/g + g tensors of edge features are kept; g > 1
            costs up to one more forward pass. The results are the same.
        plain: Layers of the local part alone, as published: no feed-forward network, no residual, see ``GSSCLayer``.

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
        edge_embedding: bool = False,
        rwse: int = 0,
        rwse_channels: int = 28,
        diagonal_channels: int = 0,
        lappe_channels: int = 0,
        local: Local | Source = "gatedgcn",
        glob: str | Source = "gssc",
        phi: Literal["deepset", "elementwise", "polynomial", "transformer", "specformer"] | Source = "deepset",
        phi_channels: int | None = None,
        kernel: Kernel = "channel",
        selective: bool = False,
        normalize: bool = True,
        self_term: bool = True,
        degree_scaling: bool = False,
        out_proj: bool = False,
        kernel_channels: int | None = None,
        in_proj: bool = True,
        degree_init: DegreeInit = "one",
        degree: Literal["in", "undirected"] = "in",
        heads: int = 4,
        smooth: Literal["none", "ends"] = "none",
        layer_scale: float = 1.0,
        dropout_input: float = 0.0,
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
        ordered_pairs: bool = False,
        plain: bool = False,
    ) -> None:
        super().__init__()
        recompute = recompute or 0
        for name, number in (("out_channels", out_channels), ("channels", channels), ("layers", layers)):
            check_positive(name, number)
        may_be_zero = {"rwse": rwse, "rwse_channels": rwse_channels, "diagonal_channels": diagonal_channels}
        may_be_zero["lappe_channels"] = lappe_channels
        for name, number in (may_be_zero | {"recompute": recompute}).items():
            if number != 0:
                check_positive(name, number)
        check_choice("level", level, get_args(Level))
        check_choice("head", head, get_args(HeadForm))
        check_choice("smooth", smooth, ("none", "ends"))
        check_choice("degree", degree, ("in", "undirected"))
        self.level, self.jumping_knowledge, self.recompute = level, jumping_knowledge, recompute
        self.smooth, self.dropout_input = smooth, dropout_input
        self.undirected = degree_scaling and degree == "undirected"
        if isinstance(glob, str):
            check_choice("glob", glob, GLOBALS)
        self.dropouts = any((dropout_local, dropout_global, dropout_ffn))
        self.local, self.glob = (part if isinstance(part, str) else "own" for part in (local, glob))

        if glob == "gsc":
            phi, selective, self_term = "elementwise", False, False
        self.phi = None
        if recompute and glob in CARRYING:
            fail("recompute", f"0 with glob={glob!r}, which hands features on beside those of nodes", recompute)
        if glob not in ("attention", "none", *RIVALS) or diagonal_channels > 0:
            self.phi = make_phi(phi, phi_channels or channels)
            phi_channels = self.phi.channels

        extra = (rwse_channels if rwse else 0) + diagonal_channels + lappe_channels
        if extra >= channels:
            fail("rwse_channels + diagonal_channels + lappe_channels", f"less than channels = {channels}", extra)
        self.node_encoder = FeatureEncoder(node_features, channels - extra, "x", embedding_init, dropout_input)
        self.edge_encoder = None
        if edge_features is not None or edge_embedding:
            self.edge_encoder = FeatureEncoder(edge_features, channels, "edge_attr", embedding_init)
        self.rwse_encoder = RandomWalkEncoder(rwse, rwse_channels) if rwse else None
        self.diagonal_encoder = None
        if self.phi is not None and diagonal_channels:
            self.diagonal_encoder = SpectralDiagonalEncoder(self.phi.channels, diagonal_channels)
        self.lappe_encoder = EigenvectorEncoder(lappe_channels) if lappe_channels else None

        numbers = iter(range(layers))

        def make_global(channels: int) -> nn.Module | None:
            if glob in RIVALS:
                return make_rival(str(glob), channels, heads, next(numbers), layers, rwse)
            if glob == "attention":
                return SoftmaxAttention(channels, heads)
            if glob == "none":
                return None
            return GSSConv(
                channels, phi_channels, kernel, selective, normalize, self_term, degree_scaling, out_proj,
                kernel_channels, in_proj, degree_init,
            )  # fmt: skip

        edges = self.edge_encoder is not None
        locals_ = make_locals(local, layers, channels, dropout_local, norm, edges, degree_histogram)
        globals_ = copies("glob", make_global if isinstance(glob, str) else glob, layers, channels)
        self.layers = nn.ModuleList(
            GSSCLayer(channels, *parts, dropout_local, dropout_global, dropout_ffn, norm, layer_scale, plain)
            for parts in zip(locals_, globals_, strict=True)
        )
        width = channels * layers if jumping_knowledge else channels
        if level == "edge":
            self.head: nn.Module = EdgeHead(width, out_channels, head, ordered_pairs, channels)
        elif level == "graph":
            self.head = GraphHead(width, out_channels, pool, head, channels)
        else:
            self.head = MLPHead(width, out_channels, head, channels)
        self.draw()

    def draw(self) -> None:
        """Framed like a GCN, both ends begin as its convolutions do."""
        for module in (self.node_encoder.linear, *self.head.children()) if self.smooth == "ends" else ():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

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
        edge_label_index: Tensor | None = None,
        expander: Tensor | None = None,
        halo: Halo | None = None,
    ) -> Tensor:
        """Predict.

        A batch may be padded to a static shape: with further graphs at its end, their nodes and the edges among them
        marked False in ``node_mask`` and ``edge_mask``. Predictions, gradients and statistics of the real graphs are
        those of the batch without them (but for random numbers of dropout). What ``x``, ``edge_attr`` and ``rwse``
        hold in padding rows is not read; rows of ``eigvecs`` must be zero there, ``eigmask`` False.

        Args:
            x: Node features as declared by ``node_features``, or ``None``; continuous ones that are mostly zeros
                may be a CSR tensor, which spares most of the work.
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
            edge_label_index: The pairs to predict for ``level="edge"``, [2, M], as PyG's ``RandomLinkSplit`` makes
                them; not read at other levels. Messages go along ``edge_index`` alone.
            expander: For ``glob="exphormer"``, [N, degree / 2], as ``ExpanderGraph`` makes it.
            halo: Of one graph that several processes hold, see ``gssc.shards``: all else is of the own nodes, while
                ``edge_index`` numbers those of the halo behind them.

        Returns:
            [G, out], [N, out] or [M, out]; rows of padding graphs and nodes mean nothing.
        """
        spectrum = eigvals, eigvecs, eigmask
        nodes, graphs = self._sizes(x, spectrum, batch, num_graphs, num_nodes)
        seeded: list[Any] = []  # whose dropout gets its seeds in one draw for all
        for layer in self.layers if self.dropouts and self.training else ():
            seeded += [layer, layer.local]
        degree = None if not self.undirected else halo.neighbors if halo else undirected_degree(edge_index, nodes)
        context = graph_context(
            nodes, graphs, batch, edge_index, ptr=ptr, largest=largest, degree=degree,
            node_mask=node_mask, edge_mask=edge_mask, seeded=seeded, halo=halo,
        )  # fmt: skip
        context.expander = expander
        self._check_numbers(x, edge_attr, rwse, spectrum, context)
        if node_mask is not None:
            x, rwse, edge_attr = blank(x, node_mask), blank(rwse, node_mask), blank(edge_attr, edge_mask)
        phi = None if self.phi is None else self.phi(eigvals, eigmask)
        h = self._encode_nodes(x, rwse, phi, spectrum, context)
        if self.smooth == "ends":
            h = dropout(averaged(h, edge_index, context).relu(), self.dropout_input, self.training)
        e = None if self.edge_encoder is None else self.edge_encoder(edge_attr, edge_index.shape[1])
        if phi is not None:  # of all layers at once, as it is cheaper
            context.gains = joint_gains([*map(attrgetter("glob"), self.layers)], phi)
        context.final = self.layers[-1].local  # type: ignore[assignment]
        outputs = []
        if self.recompute and torch.is_grad_enabled():
            outputs = recomputed_layers(self.layers, self.recompute, h, e, phi, eigvecs, context)
        else:
            for layer in self.layers:
                h, e = layer(h, edge_index, phi, eigvecs, batch, e, context=context)
                outputs.append(h)
        h = torch.cat(outputs, dim=1) if self.jumping_knowledge else outputs[-1]
        if self.level == "edge":
            check_pairs("edge_label_index", edge_label_index, nodes)
            return self.head(h, edge_label_index)
        if self.level == "graph":
            return self.head(h, context)
        return averaged(self.head(h), edge_index, context) if self.smooth == "ends" else self.head(h)

    def _sizes(
        self, x: Tensor | None, spectrum: Spectrum, batch: Tensor | None, graphs: int | None, nodes: int | None
    ) -> tuple[int, int]:
        """Numbers of nodes and graphs, from whatever tells them."""
        eigvals, eigvecs, eigmask = spectrum
        for tensor in (eigvecs, x):
            nodes = nodes if tensor is None else tensor.shape[0]
        if nodes is None:
            fail("num_nodes", "the number of nodes, where neither x nor eigvecs tells it", "None")
        if eigvals is not None:
            if graphs not in (None, eigvals.shape[0]):
                fail("eigvals", f"one row for each of num_graphs = {graphs} graphs", eigvals.shape[0])
            graphs = eigvals.shape[0]
        elif graphs is None and batch is not None:
            fail("num_graphs", "the number of graphs, where batch is given without eigvals", "None")
        if self.phi is not None or self.lappe_encoder is not None:
            if eigvals is None or eigvecs is None or eigmask is None:
                fail("eigvals", "eigvals, eigvecs and eigmask (apply gssc.LaplacianSpectrum to the data)", "None")
            if eigvecs.shape != (nodes, eigvals.shape[1]):
                check_shape("eigvecs", eigvecs, nodes, eigvals.shape[1])
        return nodes, 1 if graphs is None else graphs

    def _check_numbers(
        self, x: Tensor | None, edge_attr: Tensor | None, rwse: Tensor | None, spectrum: Spectrum, context: GraphContext
    ) -> None:
        """Numbers must be finite (on a CPU: a GPU is not made to wait) and of the weights' type."""
        if torch.compiler.is_compiling():
            return
        weights = next(self.parameters()).dtype
        for name, numbers, reader, mask in (
            ("x", x, self.node_encoder.linear, context.node_mask),
            ("edge_attr", edge_attr, self.edge_encoder, context.edge_mask),
            ("rwse", rwse, self.rwse_encoder, context.node_mask),
            ("eigvals", spectrum[0], self.phi or self.lappe_encoder, None),
            ("eigvecs", spectrum[1], self.phi or self.lappe_encoder, None),
        ):
            if numbers is None or reader is None or not numbers.is_floating_point():
                continue
            if reader is not self.phi and numbers.device.type == "cpu":
                numbers = numbers.values() if numbers.layout == torch.sparse_csr else numbers
                finite = torch.isfinite(numbers if mask is None else blank(numbers, mask))  # type: ignore[arg-type]
                if not bool(finite.all()):
                    fail(name, "finite numbers", f"{int((~finite).sum())} non-finite of {numbers.numel()}")
            if numbers.dtype != weights and not torch.is_autocast_enabled(numbers.device.type):
                fail(name, f"{weights}, the type of the model's weights (data.apply, model.to)", numbers.dtype)

    def _encode_nodes(
        self, x: Tensor | None, rwse: Tensor | None, phi: Tensor | None, spectrum: Spectrum, context: GraphContext
    ) -> Tensor:
        """Features, random-walk encodings, the diagonal of the kernels and LapPE side by side, [N, C]."""
        eigvals, eigvecs, eigmask = spectrum
        pieces = [self.node_encoder(x, context.nodes)]
        if self.rwse_encoder is not None:
            if rwse is None:
                fail("rwse", "random-walk encodings (apply gssc.RandomWalkSE to the data)", "None")
            if rwse.shape != (context.nodes, self.rwse_encoder.linear.in_features):
                check_shape("rwse", rwse, context.nodes, self.rwse_encoder.linear.in_features)
            pieces.append(self.rwse_encoder(rwse, context.node_mask))
        if self.diagonal_encoder is not None:
            pieces.append(self.diagonal_encoder(phi, eigvecs, context))
        if self.lappe_encoder is not None:
            pieces.append(self.lappe_encoder(eigvals, eigvecs, eigmask, context))
        return torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]


def model_inputs(data: Data) -> dict[str, Any]:
    """The arguments of ``GSSC.forward`` that a PyG ``Data`` or ``Batch`` holds: ``model(**model_inputs(data))``."""
    if not isinstance(data, Data):
        fail("data", "a torch_geometric.data.Data or Batch", type(data).__name__)
    check_fresh(data)
    names = ("x", "edge_index", "eigvals", "eigvecs", "eigmask", "batch", "edge_attr", "rwse")
    inputs: dict[str, Any] = {name: getattr(data, name, None) for name in names}
    inputs["edge_index"] = edges_of(data)
    if "node_mask" in data:  # a padded batch, see gssc.replay
        inputs |= {"node_mask": data.node_mask, "edge_mask": data.edge_mask, "ptr": data.ptr}
    graphs = data.num_graphs if inputs["batch"] is not None else 1
    for name in ("edge_label_index", "expander"):
        if name in data:
            inputs[name] = data[name]
    return inputs | {"num_graphs": graphs, "num_nodes": data.num_nodes}
