"""Selection written out from its definition: data-dependent positions z̃, then a sum over pairs of nodes. O(n² K C)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gssc.ops.segments import graph_slices

Weights = Mapping[str, Tensor | nn.Module]  # "dv" and `turn_names`, in this order


def turn_names(x_o: Tensor | None, x_s: Tensor | None) -> list[str]:
    """Names of the weights that turn T into T_a, in the order in which they are stacked."""
    return (["q", "k"] if x_o is not None else []) + (["sq", "sk"] if x_s is not None else [])


def turned(tensor: Tensor, turn: Tensor | nn.Module) -> Tensor:
    """Channels [..., C] through a weight in the layout of ``nn.Linear``, T W with W = weightᵀ, or a module."""
    if isinstance(turn, Tensor):
        return torch.nn.functional.linear(tensor, turn.to(tensor.dtype))
    return turn(tensor)


def selective_gssc_conv(
    x: Tensor, x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, phi: Tensor, pair_gains: Tensor,
    weights: Weights, ptr: Tensor, shared: bool, normalize: bool,
) -> Tensor:  # fmt: skip
    """z̃_u = Σ_v ⟨z_u W_dq, z_v W_dk⟩ ((z_v ⊙ x_v) W_dv), and Eq. 4 with z̃ in place of z, graph by graph."""
    rows = []
    for g, nodes in enumerate(graph_slices(ptr)):
        p, xg = vectors[nodes], x[nodes]
        z = torch.einsum("vk,kc->vkc", p, phi[g])
        kernel = torch.einsum("uj,jc,vj->uvc", p, pair_gains[g], p)
        value = turned(z * xg[:, None, :], weights["dv"])
        z_tilde = torch.einsum("uvc,vkc->ukc", kernel, value)
        if normalize:
            # ‖T_c‖_F of the matrix T_c that maps p_u to z̃_u,c: with PᵀP = I it is the norm of z̃_c over all nodes.
            tensor = torch.einsum("jc,vj,vkc->jkc", pair_gains[g], p, value)
            valid = (p != 0).any(0).sum().clamp(min=1)
            z_tilde = z_tilde / torch.sqrt(1.0 + tensor.square().sum((0, 1)) / valid)
        h = torch.zeros_like(xg)
        if x_o is not None:
            pairs = torch.einsum("ukc,vkc->uvc", turned(z_tilde, weights["q"]), turned(z_tilde, weights["k"]))
            h = h + torch.einsum("uvc,vc->uc", pairs.sum(-1, keepdim=True) if shared else pairs, x_o[nodes])
        if x_s is not None:
            own = (turned(z_tilde, weights["sq"]) * turned(z_tilde, weights["sk"])).sum(1)
            h = h + (own.sum(-1, keepdim=True) if shared else own) * x_s[nodes]
        rows.append(h)
    return torch.cat(rows) if rows else torch.zeros_like(x)
