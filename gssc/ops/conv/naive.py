"""The convolution as a plain double sum over pairs of nodes, O(n²): the judge of every faster form."""

import torch
from torch import Tensor

from gssc.ops.segments import graph_slices


def conv(
    x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, gains: Tensor | None, self_gains: Tensor | None,
    bias: Tensor | None, ptr: Tensor,
) -> tuple[Tensor]:  # fmt: skip
    """h_u = Σ_v (Σ_k P_uk A_k P_vk) ⊙ x_o,v + (Σ_k P_uk A_s,k P_uk) ⊙ x_s,u + bias, graph by graph."""
    rows = []
    for g, nodes in enumerate(graph_slices(ptr)):
        p = vectors[nodes]
        h: Tensor | float = 0.0
        if x_o is not None and gains is not None:
            kernel = torch.einsum("uk,kc,vk->uvc", p, gains[g].expand(-1, x_o.shape[1]), p)
            h = h + torch.einsum("uvc,vc->uc", kernel, x_o[nodes])
        if x_s is not None and self_gains is not None:
            diagonal = torch.einsum("uk,kc,uk->uc", p, self_gains[g].expand(-1, x_s.shape[1]), p)
            h = h + diagonal * x_s[nodes]
        rows.append(h)
    like = x_o if x_o is not None else x_s
    assert like is not None
    out = torch.cat(rows).to(like.dtype) if rows else torch.zeros_like(like)  # type: ignore[arg-type]
    return (out if bias is None else out + bias,)
