"""Selection collapsed to graph-level tensors indexed by pairs of eigenvectors, O(n K² C).

    M[j,k] = Σ_v P_vj P_vk x_v                          pair moments, symmetric in j, k
    T[j,k] = ((M[j,k] ⊙ Φ_k) W_dv) ⊙ D_j                D = (ΦW_dq) ⊙ (ΦW_dk), so that z̃_u = Σ_j P_uj T[j]
    T_a    = T W_a                                      a in q, k, sq, sk
    global = P B,   B_j = Σ_k T_q[j,k] ⊙ S_k,           S_k = Σ_j T_k[j,k] ⊙ (PᵀX_o)_j
    self   = (Σ_ij P_ui P_uj R[i,j]) ⊙ x_s,             R[i,j] = Σ_k T_sq[j,k] ⊙ T_sk[i,k]

Everything between the nodes and the pairs is a product with the row-wise outer product of P, of which only the
K (K + 1) / 2 columns j <= k are distinct: two calls of the ops in ``graph_state``.
"""

import torch
from torch import Tensor

from gssc.ops.graph_state.eager import from_state, to_state


def selective_gssc_conv(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    weights: dict[str, Tensor],
    ptr: Tensor,
    shared: bool,
    normalize: bool,
) -> Tensor:
    """The collapsed form; arguments as in the dispatch ``gssc.ops.selective_gssc_conv``."""
    k = vectors.shape[1]
    row, column = torch.triu_indices(k, k, device=vectors.device)
    pairs = vectors[:, row] * vectors[:, column]
    index = torch.empty(k, k, dtype=torch.int64, device=vectors.device)
    index[row, column] = index[column, row] = torch.arange(row.shape[0], device=vectors.device)

    moments = to_state(pairs, x, ptr)[:, index.view(-1)].unflatten(1, (k, k))
    tensor = _times(moments * phi.unsqueeze(1), weights["dv"]) * pair_gains.unsqueeze(2)
    if normalize:
        tensor = tensor * _taming(tensor, vectors, ptr)

    out: Tensor | None = None
    if x_o is not None:
        t_q, t_k = _times(tensor, weights["q"]), _times(tensor, weights["k"])
        state = to_state(vectors, x_o, ptr)
        if shared:
            state = torch.einsum("gikc,gjkc->gij", t_q, t_k).to(state.dtype) @ state
        else:
            spread = torch.einsum("gjkc,gjc->gkc", t_k, state.to(t_k.dtype))
            state = torch.einsum("gjkc,gkc->gjc", t_q, spread)
        out = from_state(vectors, state, ptr)
    if x_s is not None:
        t_sq, t_sk = _times(tensor, weights["sq"]), _times(tensor, weights["sk"])
        if shared:
            gains = torch.einsum("gjkc,gikc->gij", t_sq, t_sk).unsqueeze(-1)
        else:
            gains = torch.einsum("gjkc,gikc->gijc", t_sq, t_sk)
        # R[i,j] and R[j,i] meet the same column P_ui P_uj: it takes their sum, the diagonal itself.
        gains = gains + gains.transpose(1, 2)
        packed = gains[:, row, column] * torch.where(row == column, 0.5, 1.0).to(gains.dtype).unsqueeze(1)
        own = from_state(pairs, packed, ptr) * x_s
        out = own if out is None else out + own
    assert out is not None
    return out.to(x.dtype)


def _times(tensor: Tensor, weight: Tensor) -> Tensor:
    """Channels through a weight in the layout of ``nn.Linear``: T W with W = weightᵀ."""
    return torch.nn.functional.linear(tensor, weight.to(tensor.dtype))


def _taming(tensor: Tensor, vectors: Tensor, ptr: Tensor) -> Tensor:
    """1 / sqrt(1 + ‖T_c‖²_F / k_valid) per graph and channel, [G, 1, 1, C].

    The Frobenius norm over both indices is unchanged by a rotation T -> QᵀTQ inside an eigenspace; norms over rows,
    elements or channels are not. k_valid counts the columns of P that are not padding.
    """
    valid = (to_state(vectors.detach().square(), torch.ones_like(vectors[:, :1]), ptr) > 0).sum(1, keepdim=True)
    norm = tensor.square().sum((1, 2), keepdim=True)
    return torch.rsqrt(1.0 + norm / valid.clamp(min=1).unsqueeze(1))
