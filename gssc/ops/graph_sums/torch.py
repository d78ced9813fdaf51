"""Products between nodes and states of graphs by batched products over buckets of graphs, and sums over graphs.

    to_state:    U_g = P_gᵀ X_g        [N, K], [N, C]    -> [G, K, C]
    from_state:  Y_g = P_g S_g         [N, K], [G, K, C] -> [N, C]

Both are bilinear, and the derivative of each is made of the two again:

    U = to_state(P, X):    ∂X = from_state(P, ∂U)     ∂P = from_state(X, ∂Uᵀ)
    Y = from_state(P, S):  ∂S = to_state(P, ∂Y)       ∂P = from_state(∂Y, Sᵀ)

so they can be differentiated any number of times. Half precision is multiplied and summed in float32.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gssc.ops.op import Op, op, promoted
from gssc.ops.segments import Bucket, buckets

Pieces = Sequence[tuple[Bucket, Tensor]]  # groups of graphs with their part of P, padded: [B, size, K]


def without_autocast(like: Tensor) -> AbstractContextManager[Any]:
    """Products in the precision of their operands."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def padded(vectors: Tensor, ptr: Tensor) -> Pieces:
    """P [N, K] by buckets of graphs."""
    return [(bucket, bucket.pad(vectors)) for bucket in buckets(ptr, vectors.shape[0])]


def to_graphs(pieces: Pieces, rows: Tensor, graphs: int, frequencies: int) -> Tensor:
    """Pᵀ of rows [N, D], [G, K, D]."""
    out = rows.new_zeros(graphs, frequencies, rows.shape[1])
    for bucket, p in pieces:
        nodes = rows if bucket.nodes is None else rows.index_select(0, bucket.nodes)
        nodes = nodes if bucket.sources is None else nodes.index_select(0, bucket.sources)
        sums = torch.bmm(p.transpose(1, 2), nodes.view(bucket.count, bucket.size, rows.shape[1]))
        if bucket.graphs is None:
            return sums
        out.index_copy_(0, bucket.graphs, sums)
    return out


def to_nodes(pieces: Pieces, states: Tensor, nodes: int) -> Tensor:
    """P of states [G, K, D], [N, D]."""
    out = states.new_empty(nodes, states.shape[2])
    for bucket, p in pieces:
        bucket.unpad(torch.bmm(p, states if bucket.graphs is None else states.index_select(0, bucket.graphs)), out)
    return out


@op("gssc::to_state")
def to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """U_g = P_gᵀ X_g: vectors [N, K], x [N, C], ptr [G + 1] -> [G, K, C]."""
    dtype = promoted(vectors, x, least=torch.float32)
    with without_autocast(x):
        return to_graphs(padded(vectors.to(dtype), ptr), x.to(dtype), ptr.numel() - 1, vectors.shape[1])


@op("gssc::from_state")
def from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Y_g = P_g S_g: vectors [N, K], state [G, K, C], ptr [G + 1] -> [N, C]."""
    dtype = promoted(vectors, state, least=torch.float32)
    with without_autocast(state):
        return to_nodes(padded(vectors.to(dtype), ptr), state.to(dtype), vectors.shape[0])


@to_state.register_fake
def _(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    dtype = promoted(vectors, x, least=torch.float32)
    return x.new_empty(ptr.shape[0] - 1, vectors.shape[1], x.shape[1], dtype=dtype)


@from_state.register_fake
def _(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    return state.new_empty(vectors.shape[0], state.shape[2], dtype=promoted(vectors, state, least=torch.float32))


def register_gradients(to_state: Op, from_state: Op) -> None:
    """Make each the derivative of the other, as above; they may take as a last argument whether P stands for P⊗P."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.pairs = inputs[3:]

    def of_vectors(vectors: Tensor, rows: Tensor, state: Tensor, ptr: Tensor, pairs: tuple[bool, ...]) -> Tensor:
        """∂P_vj = Σ_c rows_vc state_jc; with pairs Σ_kc rows_vc (state_jkc + state_kjc) P_vk."""
        if not any(pairs):
            out: Tensor = from_state(rows, state.transpose(1, 2), ptr, *pairs)
            return out.to(vectors.dtype)
        k = vectors.shape[1]
        square = state.unflatten(1, (k, k))
        both = (square + square.transpose(1, 2)).flatten(1, 2)
        spread = from_state(rows, both.transpose(1, 2), ptr, False).unflatten(1, (k, k))
        return (spread * vectors.unsqueeze(1)).sum(2).to(vectors.dtype)

    def to_state_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        vectors, x, ptr = ctx.saved_tensors
        need_vectors, need_x, *others = ctx.needs_input_grad
        d_vectors = of_vectors(vectors, x, grad, ptr, ctx.pairs) if need_vectors else None
        d_x = from_state(vectors, grad, ptr, *ctx.pairs).to(x.dtype) if need_x else None
        return d_vectors, d_x, *[None for _ in others]

    def from_state_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        vectors, state, ptr = ctx.saved_tensors
        need_vectors, need_state, *others = ctx.needs_input_grad
        d_vectors = of_vectors(vectors, grad, state, ptr, ctx.pairs) if need_vectors else None
        d_state = to_state(vectors, grad, ptr, *ctx.pairs).to(state.dtype) if need_state else None
        return d_vectors, d_state, *[None for _ in others]

    to_state.register_autograd(to_state_backward, setup_context=setup)
    from_state.register_autograd(from_state_backward, setup_context=setup)


register_gradients(to_state, from_state)


def pairs_to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """Σ_v P_vj P_vk x_v: vectors [N, K], x [N, C] -> [G, K, K, C].

    A product with the row-wise outer product of P, of which only the K (K + 1) / 2 columns j <= k are distinct.
    """
    k = vectors.shape[1]
    row, column = torch.triu_indices(k, k, device=vectors.device)
    index = torch.empty(k, k, dtype=torch.int64, device=vectors.device)
    index[row, column] = index[column, row] = torch.arange(row.shape[0], device=vectors.device)
    distinct: Tensor = to_state(vectors[:, row] * vectors[:, column], x, ptr)
    return distinct[:, index.view(-1)].unflatten(1, (k, k))


def pairs_from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Σ_jk P_vj P_vk S_jk: vectors [N, K], state [G, K, K, C] -> [N, C]."""
    row, column = torch.triu_indices(*state.shape[1:3], device=vectors.device)
    # S[j,k] and S[k,j] meet the same column P_vj P_vk: it takes their sum, the diagonal itself.
    both = state + state.transpose(1, 2)
    packed = both[:, row, column] * torch.where(row == column, 0.5, 1.0).to(state.dtype).unsqueeze(1)
    out: Tensor = from_state(vectors[:, row] * vectors[:, column], packed, ptr)
    return out
