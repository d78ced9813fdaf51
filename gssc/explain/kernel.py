r"""The kernel that a convolution has learned, as one node sees it.

With P the eigenvectors and A = (ΦW_q) ⊙ (ΦW_k) the gains, the global term of layer ℓ is, channel by channel,

.. math:: h_{uc} = \sum_v K_c(u, v)\, (W_o x_v)_c, \qquad K_c(u, v) = \sum_k P_{uk} A_{kc} P_{vk}

and with selection the same with positions z̃ that depend on the features. What the layer does besides is not part of K:
degree scaling and W_o act on features before it, ``out_proj`` after it, and the self term adds K_s(u) ⊙ W_s x_u.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from gssc.explain.watch import check_graph, check_number, watch_convolution
from gssc.model import GSSC


def kernel_row(model: GSSC, data: Data, node: int, layer: int = -1) -> Tensor:
    """K_c(u, ·) of a layer on this graph, [N, C]: how strongly channel c of W_o x_v enters node u.

    Exact, for every form of the convolution: it is linear in W_o x, so K is its derivative. With selection, positions
    z̃ are those that the features of this graph give. A kernel shared by channels has equal columns.

    Args:
        model: A trained model with ``glob="gssc"`` or ``"gsc"``; its mode and weights stay as they are.
        data: One graph with its spectrum, as the model takes it.
        node: u, counted from 0.
        layer: Counted from 0; -1 is the last.
    """
    return node_kernel(model, data, node, layer)[0]


def self_weight(model: GSSC, data: Data, node: int, layer: int = -1) -> Tensor:
    """K_s(u) = Σ_k P_uk² A_s,kc [C], what the self term multiplies W_s x_u with; zeros where there is no such term."""
    return node_kernel(model, data, node, layer)[1]


def node_kernel(model: GSSC, data: Data, node: int, layer: int) -> tuple[Tensor, Tensor]:
    """`kernel_row` and `self_weight` of a node."""
    u = check_number("node", node, check_graph(model, data), "a node")
    conv, (x, phi, vectors, context) = watch_convolution(model, data, layer)
    with torch.enable_grad():
        features = torch.zeros_like(x).requires_grad_()
        row = conv.mix(x, features, None, phi, vectors, context)[u]
        # Channels do not mix, so the derivative of their sum has those of all of them side by side.
        (kernel,) = torch.autograd.grad(row.sum(), features)
    if not conv.self_term:
        return kernel, torch.zeros_like(x[u])
    with torch.no_grad():
        return kernel, conv.mix(x, None, torch.ones_like(x), phi, vectors, context)[u]
