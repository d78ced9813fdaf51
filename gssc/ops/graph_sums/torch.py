"""The two products between nodes and a graph's state, as torch.library ops.

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

from gssc.ops.segments import layout


def accumulate_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype of products and sums: the widest of the inputs, and at least float32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


@torch.library.custom_op("gssc::to_state", mutates_args=())
def to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """U_g = P_gᵀ X_g: vectors [N, K], x [N, C], ptr [G + 1] -> [G, K, C]."""
    dtype = accumulate_dtype(vectors, x)
    vectors, x = vectors.to(dtype), x.to(dtype)
    graphs, (nodes, k), c = ptr.numel() - 1, vectors.shape, x.shape[1]
    plan = layout(ptr, nodes)
    with torch.autocast(x.device.type, enabled=False):
        if plan.uniform is not None:
            p, rows = vectors.view(graphs, plan.uniform, k), x.view(graphs, plan.uniform, c)
            return torch.bmm(p.transpose(1, 2), rows)
        out = x.new_zeros(graphs, k, c)
        for bucket in plan.buckets:
            out.index_copy_(0, bucket.graphs, torch.bmm(bucket.pad(vectors).transpose(1, 2), bucket.pad(x)))
        return out


@torch.library.custom_op("gssc::from_state", mutates_args=())
def from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Y_g = P_g S_g: vectors [N, K], state [G, K, C], ptr [G + 1] -> [N, C]."""
    dtype = accumulate_dtype(vectors, state)
    vectors, state = vectors.to(dtype), state.to(dtype)
    nodes, k = vectors.shape
    plan = layout(ptr, nodes)
    with torch.autocast(state.device.type, enabled=False):
        if plan.uniform is not None:
            return torch.bmm(vectors.view(state.shape[0], plan.uniform, k), state).view(nodes, state.shape[2])
        out = state.new_empty(nodes, state.shape[2])
        for bucket in plan.buckets:
            bucket.unpad(torch.bmm(bucket.pad(vectors), state.index_select(0, bucket.graphs)), out)
        return out


@to_state.register_fake
def _(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    return x.new_empty(ptr.shape[0] - 1, vectors.shape[1], x.shape[1], dtype=accumulate_dtype(vectors, x))


@from_state.register_fake
def _(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    return state.new_empty(vectors.shape[0], state.shape[2], dtype=accumulate_dtype(vectors, state))


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _to_state_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    vectors, x, ptr = ctx.saved_tensors
    need_vectors, need_x, _ = ctx.needs_input_grad
    grad_vectors = from_state(x, grad.transpose(1, 2), ptr).to(vectors.dtype) if need_vectors else None
    return grad_vectors, from_state(vectors, grad, ptr).to(x.dtype) if need_x else None, None


def _from_state_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    vectors, state, ptr = ctx.saved_tensors
    need_vectors, need_state, _ = ctx.needs_input_grad
    grad_vectors = from_state(grad, state.transpose(1, 2), ptr).to(vectors.dtype) if need_vectors else None
    return grad_vectors, to_state(vectors, grad, ptr).to(state.dtype) if need_state else None, None


to_state.register_autograd(_to_state_backward, setup_context=_save_inputs)
from_state.register_autograd(_from_state_backward, setup_context=_save_inputs)


def _columns(vectors: Tensor) -> tuple[Tensor, Tensor]:
    k = vectors.shape[1]
    row, column = torch.triu_indices(k, k, device=vectors.device)
    return row, column


def pairs_to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """Σ_v P_vj P_vk x_v: vectors [N, K], x [N, C] -> [G, K, K, C].

    A product with the row-wise outer product of P, of which only the K (K + 1) / 2 columns j <= k are distinct.
    """
    k = vectors.shape[1]
    row, column = _columns(vectors)
    index = torch.empty(k, k, dtype=torch.int64, device=vectors.device)
    index[row, column] = index[column, row] = torch.arange(row.shape[0], device=vectors.device)
    distinct: Tensor = to_state(vectors[:, row] * vectors[:, column], x, ptr)
    return distinct[:, index.view(-1)].unflatten(1, (k, k))


def pairs_from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Σ_jk P_vj P_vk S_jk: vectors [N, K], state [G, K, K, C] -> [N, C]."""
    row, column = _columns(vectors)
    # S[j,k] and S[k,j] meet the same column P_vj P_vk: it takes their sum, the diagonal itself.
    both = state + state.transpose(1, 2)
    packed = both[:, row, column] * torch.where(row == column, 0.5, 1.0).to(state.dtype).unsqueeze(1)
    out: Tensor = from_state(vectors[:, row] * vectors[:, column], packed, ptr)
    return out
