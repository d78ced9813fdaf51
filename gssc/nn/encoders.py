"""Encoders: from raw node, edge and structural features to channels."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gssc.checks import check_choice, check_positive, check_shape, fail
from gssc.nn.context import GraphContext
from gssc.nn.norm import BatchNorm
from gssc.ops import Branch, embedding_sum, gssc_conv, residual_norm

# What raw features look like: a number of continuous columns, the vocabulary size of every categorical column, or None.
Features = int | Sequence[int] | None

EmbeddingInit = Literal["normal", "xavier"]
EMBEDDING_INITS = ("normal", "xavier")


class FeatureEncoder(nn.Module):
    """Continuous columns through a Linear, categorical columns as a sum of embeddings, ``None`` as one learned vector.

    Args:
        features: An integer D (continuous [N, D]), a sequence of vocabulary sizes (categorical [N, len]), or ``None``.
        channels: C, width of the result.
        name: How errors call the input.
        embedding_init: First values of embeddings: ``"normal"`` with deviation 1, as PyTorch makes them, or
            ``"xavier"``, uniform within ±√(6 / (categories + C)), as OGB's encoders do. What a category that
            training never shows starts with, only weight decay changes: the second disturbs less where the test has it.

    Shapes:
        [N, D] or [N] (one column) or None (with ``rows`` = N) -> [N, C]
    """

    def __init__(
        self, features: Features, channels: int, name: str = "x", embedding_init: EmbeddingInit = "normal"
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_choice("embedding_init", embedding_init, EMBEDDING_INITS)
        self.name = name
        self.linear: nn.Linear | None = None
        self.embeddings: nn.ModuleList | None = None
        self.constant: nn.Parameter | None = None
        if features is None:
            self.constant = nn.Parameter(torch.randn(channels))
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
            if embedding_init == "xavier":
                for embedding in self.embeddings:
                    nn.init.xavier_uniform_(embedding.weight)  # type: ignore[arg-type]

    def forward(self, raw: Tensor | None, rows: int) -> Tensor:
        if self.constant is not None:
            return self.constant.repeat(rows, 1)
        if raw is None:
            fail(self.name, "a tensor of features", "None")
        columns = raw.unsqueeze(1) if raw.dim() == 1 else raw
        if self.linear is not None:
            check_shape(self.name, columns, rows, self.linear.in_features)
            if not columns.is_floating_point():
                fail(self.name, "floating-point features (a sequence of vocabulary sizes means categories)", raw.dtype)
            return self.linear(columns)
        assert self.embeddings is not None
        check_shape(self.name, columns, rows, len(self.embeddings))
        if columns.is_floating_point():
            fail(self.name, "integer categories (an integer number of features means continuous)", raw.dtype)
        if torch.compiler.is_compiling():
            return embedding_sum(columns, self.embeddings)
        try:
            return embedding_sum(columns, self.embeddings)
        except IndexError:  # on a CPU; a GPU has no words for it
            for i, embedding in enumerate(self.embeddings):
                size, column = int(embedding.weight.shape[0]), columns[:, i]  # type: ignore[index]
                if bool(((column < 0) | (column >= size)).any()):
                    span = f"{int(column.min())}..{int(column.max())}"
                    fail(f"{self.name}, column {i}", f"categories in 0..{size - 1}", span)
            raise


class RandomWalkEncoder(nn.Module):
    """Return probabilities [N, steps], normalised over the (real) nodes of the batch, then a Linear: [N, C]."""

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(steps)
        self.linear = nn.Linear(steps, channels)

    def forward(self, rwse: Tensor, node_mask: Tensor | None = None) -> Tensor:
        normed = residual_norm(None, [Branch(rwse, self.norm)], node_mask, training=False)
        return self.linear(normed)


class SpectralDiagonalEncoder(nn.Module):
    r"""The diagonal of the learned kernels, :math:`(P \odot P) \Phi`, normalised, then a Linear: [N, C].

    A positional encoding of nodes that is invariant to signs and rotations of eigenvectors, unlike their raw entries.
    Summed over nodes it is Σ_k Φ_k whatever the size of the graph, so it is scaled by the number of nodes per graph.
    """

    def __init__(self, phi_channels: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(phi_channels)
        self.linear = nn.Linear(phi_channels, channels)

    def forward(self, phi: Tensor, vectors: Tensor, context: GraphContext) -> Tensor:
        sizes = torch.diff(context.ptr).to(phi.dtype).view(-1, 1, 1)
        # It is the self term of a convolution of ones.
        ones = phi.new_ones(vectors.shape[0], phi.shape[2])
        diagonal = gssc_conv(None, ones, vectors, None, phi * sizes, context.ptr)
        normed = residual_norm(None, [Branch(diagonal, self.norm)], context.node_mask, training=False)
        return self.linear(normed)
