"""Selection collapsed to graph-level tensors indexed by pairs of eigenvectors, O(n K² C).

    M[j,k] = Σ_v P_vj P_vk x_v                          pair moments, symmetric in j, k
    T[j,k] = ((M[j,k] ⊙ Φ_k) W_dv) ⊙ D_j                D = (ΦW_dq) ⊙ (ΦW_dk), so that z̃_u = Σ_j P_uj T[j]
    T_a    = T W_a                                      a in q, k, sq, sk
    global = P B,   B_j = Σ_k T_q[j,k] ⊙ S_k,           S_k = Σ_j T_k[j,k] ⊙ (PᵀX_o)_j
    self   = (Σ_ij P_ui P_uj R[i,j]) ⊙ x_s,             R[i,j] = Σ_k T_sq[j,k] ⊙ T_sk[i,k]

Everything between the nodes and a graph is one of the four products of ``graph_sums``, with P or with its pairs;
``triton.py`` calls this same function with the products that Triton makes.
"""

from types import ModuleType

import torch
from torch import Tensor

from gssc.ops.graph_sums import torch as sums
from gssc.ops.selective.naive import Weights, turned


def selective_gssc_conv(
    x: Tensor, x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, phi: Tensor, pair_gains: Tensor,
    weights: Weights, ptr: Tensor, shared: bool, normalize: bool, by: ModuleType = sums,
) -> Tensor:  # fmt: skip
    """The collapsed form; ``by`` has the products between nodes and graphs."""
    moments = by.pairs_to_state(vectors, x, ptr)
    tensor = turned(moments * phi.unsqueeze(1), weights["dv"]) * pair_gains.unsqueeze(2)
    if normalize:
        tensor = tensor * _taming(tensor, vectors, ptr, by)

    out: Tensor | None = None
    if x_o is not None:
        t_q, t_k = turned(tensor, weights["q"]), turned(tensor, weights["k"])
        state = by.to_state(vectors, x_o, ptr)
        if shared:
            state = torch.einsum("gikc,gjkc->gij", t_q, t_k).to(state.dtype) @ state
        else:
            spread = torch.einsum("gjkc,gjc->gkc", t_k, state.to(t_k.dtype))
            state = torch.einsum("gjkc,gkc->gjc", t_q, spread)
        out = by.from_state(vectors, state, ptr)
    if x_s is not None:
        t_sq, t_sk = turned(tensor, weights["sq"]), turned(tensor, weights["sk"])
        if shared:
            gains = torch.einsum("gjkc,gikc->gij", t_sq, t_sk).unsqueeze(-1)
        else:
            gains = torch.einsum("gjkc,gikc->gijc", t_sq, t_sk)
        own = by.pairs_from_state(vectors, gains, ptr) * x_s
        out = own if out is None else out + own
    assert out is not None
    return out.to(x.dtype)


def _taming(tensor: Tensor, vectors: Tensor, ptr: Tensor, by: ModuleType) -> Tensor:
    """1 / sqrt(1 + ‖T_c‖²_F / k_valid) per graph and channel, [G, 1, 1, C].

    The Frobenius norm over both indices is unchanged by a rotation T -> QᵀTQ inside an eigenspace; norms over rows,
    elements or channels are not. k_valid counts the columns of P that are not padding.
    """
    valid = (by.to_state(vectors.detach().square(), torch.ones_like(vectors[:, :1]), ptr) > 0).sum(1, keepdim=True)
    norm = tensor.square().sum((1, 2), keepdim=True)
    return torch.rsqrt(1.0 + norm / valid.clamp(min=1).unsqueeze(1))
