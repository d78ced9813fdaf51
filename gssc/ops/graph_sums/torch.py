"""Products between nodes and states of graphs by batched products over buckets of graphs.

    to_state:    U_g = P_gᵀ X_g        [N, K], [N, C]    -> [G, K, C]
    from_state:  Y_g = P_g S_g         [N, K], [G, K, C] -> [N, C]

Both are bilinear, and the derivative of each is made of the two again:

    U = to_state(P, X):    ∂X = from_state(P, ∂U)     ∂P = from_state(X, ∂Uᵀ)
    Y = from_state(P, S):  ∂S = to_state(P, ∂Y)       ∂P = from_state(∂Y, Sᵀ)

so they can be differentiated any number of times. Half precision is multiplied and summed in float32.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.op import Op, op, promoted
from gssc.ops.segments import buckets


@op("gssc::to_state")
def to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """U_g = P_gᵀ X_g: vectors [N, K], x [N, C], ptr [G + 1] -> [G, K, C]."""
    dtype = promoted(vectors, x, least=torch.float32)
    vectors, x = vectors.to(dtype), x.to(dtype)
    out = x.new_zeros(ptr.numel() - 1, vectors.shape[1], x.shape[1])
    with torch.autocast(x.device.type, enabled=False):
        for bucket in buckets(ptr, vectors.shape[0]):
            rows = x if bucket.nodes is None else x.index_select(0, bucket.nodes)
            rows = rows if bucket.sources is None else rows.index_select(0, bucket.sources)
            sums = torch.bmm(bucket.pad(vectors).transpose(1, 2), rows.view(bucket.count, bucket.size, x.shape[1]))
            if bucket.graphs is None:
                return sums
            out.index_copy_(0, bucket.graphs, sums)
    return out


@op("gssc::from_state")
def from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Y_g = P_g S_g: vectors [N, K], state [G, K, C], ptr [G + 1] -> [N, C]."""
    dtype = promoted(vectors, state, least=torch.float32)
    vectors, state = vectors.to(dtype), state.to(dtype)
    out = state.new_empty(vectors.shape[0], state.shape[2])
    with torch.autocast(state.device.type, enabled=False):
        for bucket in buckets(ptr, vectors.shape[0]):
            states = state if bucket.graphs is None else state.index_select(0, bucket.graphs)
            bucket.unpad(torch.bmm(bucket.pad(vectors), states), out)
    return out


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
            return from_state(rows, state.transpose(1, 2), ptr)
        square = state.unflatten(1, (vectors.shape[1],) * 2)
        both = (square + square.transpose(1, 2)).flatten(1, 2)
        spread = from_state(rows, both.transpose(1, 2), ptr).unflatten(1, square.shape[1:3])
        return (spread * vectors.unsqueeze(1)).sum(2)

    def register(product: Op, partner: Op) -> None:
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            vectors, other, ptr = ctx.saved_tensors
            need_vectors, need_other, *rest = ctx.needs_input_grad
            d_vectors = d_other = None
            if need_vectors:
                rows, state = (other, grad) if product is to_state else (grad, other)
                d_vectors = of_vectors(vectors, rows, state, ptr, ctx.pairs).to(vectors.dtype)
            if need_other:
                d_other = partner(vectors, grad, ptr, *ctx.pairs).to(other.dtype)
            return d_vectors, d_other, *[None for _ in rest]

        product.register_autograd(backward, setup_context=setup)

    register(to_state, from_state)
    register(from_state, to_state)


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
    return from_state(vectors[:, row] * vectors[:, column], packed, ptr)
