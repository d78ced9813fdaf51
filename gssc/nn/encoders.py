"""Both ends of a model: encoders, from raw features to channels, and heads, from channels to predictions."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_positive, check_probability, check_shape, fail
from gssc.nn.norm import BatchNorm
from gssc.nn.reset import Resets
from gssc.ops import Branch, dropout, graph_pool, gssc_conv, residual_norm
from gssc.ops.context import GraphContext
from gssc.ops.op import is_traced, unmodified
from gssc.spectra.sparse_operator import sparse_rows

# What raw features look like: a number of continuous columns, the vocabulary size of every categorical column, or None.
Features = int | Sequence[int] | None

EmbeddingInit = Literal["normal", "xavier"]
MAX_ENTRIES = 2**25  # of the zeros and ones that stand for categories: 128 MB
# What an embedding may do besides looking up rows.
EXTRAS, NO_EXTRAS = attrgetter("padding_idx", "max_norm", "sparse", "scale_grad_by_freq"), (None, None, False, False)

Level = Literal["node", "graph", "edge"]
HeadForm = Literal["halving", "wide", "linear", "normalized-1", "normalized-2"]
Pool = Literal["sum", "mean", "max"]


class FeatureEncoder(Resets, nn.Module):
    """Continuous columns through a Linear, categorical columns as a sum of embeddings, ``None`` as one learned vector.

    Args:
        features: An integer D (continuous [N, D]), a sequence of vocabulary sizes (categorical [N, len]), or ``None``.
        channels: C, width of the result.
        name: How errors call the input.
        embedding_init: First values of embeddings: ``"normal"`` with deviation 1, as PyTorch makes them, or
            ``"xavier"``, uniform within ±√(6 / (categories + C)), as OGB's encoders do, and so the weights of a
            Linear, as PyG's do. What a category that
            training never shows starts with, only weight decay changes: the second disturbs less where the test has it.
        dropout: Of continuous columns, before the Linear; of the sum of embeddings.

    Shapes:
        [N, D] or [N] (one column) or None (with ``rows`` = N) -> [N, C]
    """

    def __init__(
        self,
        features: Features,
        channels: int,
        name: str = "x",
        embedding_init: EmbeddingInit = "normal",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_probability("dropout_input", dropout)
        check_choice("embedding_init", embedding_init, get_args(EmbeddingInit))
        self.name, self.embedding_init, self.dropout = name, embedding_init, dropout
        self.linear: nn.Linear | None = None
        self.embeddings: nn.ModuleList | None = None
        self.constant: nn.Parameter | None = None
        if features is None:
            self.constant = nn.Parameter(torch.empty(channels))
        elif isinstance(features, int):
            check_positive(f"{name} features", features)
            self.linear = nn.Linear(features, channels)
        else:
            if not isinstance(features, Sequence) or isinstance(features, str):
                fail(f"{name} features", "a number of features, a sequence of vocabulary sizes or None", repr(features))
            if not features:
                fail(f"{name} features", "one or more vocabulary sizes", "none")
            for size in features:
                check_positive(f"{name} vocabulary", size)
            self.embeddings = nn.ModuleList(nn.Embedding(size, channels) for size in features)
        self.draw()

    def draw(self) -> None:
        """First values where they are not those of PyTorch's modules."""
        if self.constant is not None:
            nn.init.normal_(self.constant)
        for embedding in self.embeddings or () if self.embedding_init == "xavier" else ():
            nn.init.xavier_uniform_(embedding.weight)  # type: ignore[arg-type]
        if self.linear is not None and self.embedding_init == "xavier":
            nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, raw: Tensor | None, rows: int) -> Tensor:
        if self.constant is not None:
            return self.constant.repeat(rows, 1)
        if raw is None:
            fail(self.name, "a tensor of features", "None")
        columns = raw.unsqueeze(1) if raw.dim() == 1 else raw
        if self.linear is not None:
            if columns.shape != (rows, self.linear.in_features):
                check_shape(self.name, columns, rows, self.linear.in_features)
            if not columns.is_floating_point():
                fail(self.name, "floating-point features (a sequence of vocabulary sizes means categories)", raw.dtype)
            return _product(columns, self.linear, self.dropout, self.training)
        assert self.embeddings is not None
        if columns.shape != (rows, len(self.embeddings)):
            check_shape(self.name, columns, rows, len(self.embeddings))
        if columns.is_floating_point():
            fail(self.name, "integer categories (an integer number of features means continuous)", raw.dtype)
        try:
            embedded = embedding_sum(columns, self.embeddings)
            return dropout(embedded, self.dropout, self.training) if self.dropout else embedded
        except (IndexError, RuntimeError):  # on a CPU; a GPU has no words for it
            if columns.is_cuda or torch.compiler.is_compiling():
                raise
            for i, embedding in enumerate(self.embeddings):
                size, column = int(embedding.weight.shape[0]), columns[:, i]  # type: ignore[index]
                if bool(((column < 0) | (column >= size)).any()):
                    span = f"{int(column.min())}..{int(column.max())}"
                    fail(f"{self.name}, column {i}", f"categories in 0..{size - 1}", span)
            raise


def _product(x: Tensor, linear: nn.Linear, p: float, training: bool) -> Tensor:
    """drop(x) W + b; of a CSR tensor only the numbers that it stores are dropped and multiplied: zeros stay zeros."""
    if x.layout != torch.sparse_csr:
        return linear(dropout(x, p, training) if p else x)
    kept = dropout(x.values(), p, training)
    rows, columns = x.crow_indices(), x.col_indices()
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(sparse_rows(rows, columns, kept, x.shape), linear.weight, linear.bias)


def embedding_sum(columns: Tensor, embeddings: Sequence[nn.Module] | nn.ModuleList) -> Tensor:
    """Σ_i embedding_i(column i) of integer columns [N, I]: [N, C].

    On a GPU, where that is small, as zeros and ones [N, V] times all tables [V, C]: the gradient of the tables is one
    product as well. That of an embedding sorts its indices, some ten launches for each of a molecule's twelve columns.
    """
    tables: Any = []
    if columns.is_cuda and not is_traced(columns):
        tables = [e.weight for e in embeddings if unmodified(e, kind=nn.Embedding) and EXTRAS(e) == NO_EXTRAS]
    categories = sum(map(len, tables))
    if len(tables) < len(embeddings) or columns.shape[0] * categories > MAX_ENTRIES:
        total: Tensor = embeddings[0](columns[:, 0])
        for i in range(1, len(embeddings)):
            total = total + embeddings[i](columns[:, i])
        return total
    ones = tables[0].new_zeros(columns.shape[0], categories)
    start = 0
    for column, table in zip(columns.T, tables, strict=True):
        # Column by column, so that a category beyond its table fails as in an embedding.
        ones[:, start : start + table.shape[0]].scatter_(1, column.long().unsqueeze(1), 1.0)
        start += table.shape[0]
    with torch.autocast(columns.device.type, enabled=False):
        return ones @ torch.cat(tables)


class RandomWalkEncoder(Resets, nn.Module):
    """Return probabilities [N, steps], normalised over the (real) nodes of the batch, then a Linear: [N, C]."""

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(steps)
        self.linear = nn.Linear(steps, channels)

    def forward(self, rwse: Tensor, node_mask: Tensor | None = None) -> Tensor:
        normed = residual_norm(None, [Branch(rwse, self.norm)], node_mask, training=False)
        return self.linear(normed)


class SpectralDiagonalEncoder(Resets, nn.Module):
    r"""The diagonal of the learned kernels, :math:`(P \odot P) \Phi`, normalised, then a Linear: [N, C].

    A positional encoding of nodes that is invariant to signs and rotations of eigenvectors, unlike their raw entries.
    Summed over nodes it is Σ_k Φ_k whatever the size of the graph, so it is scaled by the number of nodes per graph.
    """

    def __init__(self, phi_channels: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(phi_channels)
        self.linear = nn.Linear(phi_channels, channels)

    def forward(self, phi: Tensor, vectors: Tensor, context: GraphContext) -> Tensor:
        sizes = context.sizes.to(phi.dtype).view(-1, 1, 1)
        # It is the self term of a convolution of ones.
        ones = phi.new_ones(vectors.shape[0], phi.shape[2])
        diagonal = gssc_conv(None, ones, vectors, None, phi * sizes, context.ptr)
        normed = residual_norm(None, [Branch(diagonal, self.norm)], context.node_mask, training=False)
        return self.linear(normed)


class EigenvectorEncoder(Resets, nn.Module):
    r"""LapPE as GraphGPS has it: a deep set of eigenvector entries with their eigenvalues, [N, C].

    .. math:: \mathrm{pe}_u = \sum_k \mathrm{ReLU}(\mathrm{Linear}(\mathrm{ReLU}(\mathrm{Linear}([s_k p_{uk}, λ_k]))))

    It is not invariant to signs and bases of eigenvectors: in training each has a random sign s_k = ±1 in every graph,
    which augments the data; in evaluation the signs are those of the solver, which are the same for the same graph.
    `SpectralDiagonalEncoder` is the invariant encoding in its place.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2 * channels)
        self.outer = nn.Linear(2 * channels, channels)

    def forward(self, eigvals: Tensor, vectors: Tensor, eigmask: Tensor, context: GraphContext) -> Tensor:
        of_nodes = context.spread
        if self.training:
            vectors = vectors * of_nodes(torch.empty_like(eigvals).bernoulli_().mul_(2).sub_(1))
        pairs = torch.stack([vectors, of_nodes(eigvals.masked_fill(~eigmask, 0.0))], dim=2)
        encoded = self.outer(self.inner(pairs).relu()).relu()
        return encoded.masked_fill(~of_nodes(eigmask).unsqueeze(2), 0.0).sum(1)


class UnitRows(nn.Module):
    """Every row divided by its length."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


class MLPHead(Resets, nn.Sequential):
    """From C channels to the outputs, with ReLU between linear maps.

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs.
        form: ``"halving"``: C → C/2 → C/4 → out; ``"wide"``: C → C → C → out; ``"linear"``: C → out;
            ``"normalized-1"`` and ``"normalized-2"``: one and two hidden layers C → C with rows of length 1, then out.
        narrowed: c, for the last two forms: before them C → c → c, with SiLU between, and then c in place of C.
    """

    def __init__(
        self, channels: int, out_channels: int, form: HeadForm = "halving", narrowed: int | None = None
    ) -> None:
        check_positive("out_channels", out_channels)
        check_choice("form", form, get_args(HeadForm))
        if form in ("normalized-1", "normalized-2"):
            super().__init__(*_normalized(channels, narrowed or channels, int(form[-1]), out_channels))
            return
        widths = [channels]
        if form != "linear":
            factor = 2 if form == "halving" else 1
            widths += [max(1, channels // factor), max(1, channels // factor**2)]
        steps: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            steps += [nn.Linear(wide, narrow), nn.ReLU()]
        super().__init__(*steps, nn.Linear(widths[-1], out_channels))


def _normalized(channels: int, width: int, hidden: int, out_channels: int) -> Iterator[nn.Module]:
    """The steps of a head with ``hidden`` layers of unit length."""
    if width != channels:
        yield from (nn.Linear(channels, width), nn.SiLU(), nn.Linear(width, width))
    for _ in range(hidden):
        yield from (nn.Linear(width, width), nn.ReLU(), UnitRows())
    yield nn.Linear(width, out_channels)


class GraphHead(Resets, nn.Module):
    """Pool the nodes of every graph, then an MLP: [N, C] -> [G, out].

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs.
        pool: ``"sum"``, ``"mean"`` or ``"max"``; a graph without nodes pools to zero.
        form: Of the MLP, see ``MLPHead``; likewise ``narrowed``.
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        pool: Pool = "mean",
        form: HeadForm = "halving",
        narrowed: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("pool", pool, get_args(Pool))
        self.pool = pool
        self.mlp = MLPHead(channels, out_channels, form, narrowed)

    def forward(self, x: Tensor, context: GraphContext) -> Tensor:
        if context.reduce is None:
            return self.mlp(graph_pool(x, context.batch, context.ptr, self.pool))
        total = context.reduce(graph_pool(x, None, context.ptr, "sum"))
        return self.mlp(total / context.sizes.unsqueeze(1) if self.pool == "mean" else total)


class EdgeHead(Resets, nn.Module):
    r"""Score pairs (u, v) of nodes by the states of both ends: [N, C] and pairs [2, M] -> [M, out].

    .. math:: s(u, v) = \mathrm{MLP}(h_u \odot h_v \,\|\, |h_u - h_v|)

    which is the same for (v, u). Where pairs are ordered, :math:`h_u - h_v` stands in place of its absolute value, and
    the score of (v, u) is another.

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs of every pair.
        form: Of the MLP, whose input has 2 C channels, see ``MLPHead``; likewise ``narrowed``.
        ordered: Whether (u, v) and (v, u) are different pairs.
    """

    def __init__(
        self,
        channels: int,
        out_channels: int,
        form: HeadForm = "halving",
        ordered: bool = False,
        narrowed: int | None = None,
    ) -> None:
        super().__init__()
        self.ordered = ordered
        self.mlp = MLPHead(2 * channels, out_channels, form, narrowed)

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        source, target = x.index_select(0, pairs[0]), x.index_select(0, pairs[1])
        difference = source - target
        return self.mlp(torch.cat([source * target, difference if self.ordered else difference.abs()], dim=1))
