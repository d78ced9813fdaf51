"""Sums of embeddings of categorical columns."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gssc.ops.linears import unmodified
from gssc.ops.op import is_traced

MAX_ENTRIES = 2**25  # of the zeros and ones that stand for categories: 128 MB


def embedding_sum(columns: Tensor, embeddings: Sequence[nn.Module] | nn.ModuleList) -> Tensor:
    """Σ_i embedding_i(column i) of integer columns [N, I]: [N, C]."""
    if columns.is_cuda and not is_traced(columns) and all(_simple(embedding) for embedding in embeddings):
        tables: list[Tensor] = [embedding.weight for embedding in embeddings]  # type: ignore[misc]
        if columns.shape[0] * sum(table.shape[0] for table in tables) <= MAX_ENTRIES:
            return sum_of_rows(columns, tables)
    total: Tensor = embeddings[0](columns[:, 0])
    for column, embedding in list(enumerate(embeddings))[1:]:
        total = total + embedding(columns[:, column])
    return total


def _simple(embedding: nn.Module) -> bool:
    """Whether the weights alone say what the module does."""
    if not unmodified(embedding, nn.Embedding):
        return False
    assert isinstance(embedding, nn.Embedding)
    options = (
        embedding.padding_idx,
        embedding.max_norm,
        embedding.scale_grad_by_freq or None,
        embedding.sparse or None,
    )
    return options == (None, None, None, None)


def sum_of_rows(columns: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """Row columns[n, i] of table i, summed over i: [N, C], as zeros and ones [N, V] times all tables [V, C].

    The gradient of the tables is one product as well. That of an embedding sorts its indices, some ten launches for
    each of a molecule's twelve columns.
    """
    ones = tables[0].new_zeros(columns.shape[0], sum(table.shape[0] for table in tables))
    start = 0
    for column, table in zip(columns.T, tables, strict=True):
        # Column by column, so that a category beyond its table fails as in an embedding.
        ones[:, start : start + table.shape[0]].scatter_(1, column.long().unsqueeze(1), 1.0)
        start += table.shape[0]
    with torch.autocast(columns.device.type, enabled=False):
        return ones @ torch.cat(list(tables))
