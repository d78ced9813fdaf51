r"""The kernel that a convolution has learned, as one node sees it.

With P the eigenvectors and A = (ΦW_q) ⊙ (ΦW_k) the gains, the global term of layer ℓ is, channel by channel,

.. math:: h_{uc} = \sum_v K_c(u, v)\, (W_o x_v)_c, \qquad K_c(u, v) = \sum_k P_{uk} A_{kc} P_{vk}

and with selection the same with positions z̃ that depend on the features. What the layer does besides is not part of K:
degree scaling and W_o act on features before it, ``out_proj`` after it, and the self term adds K_s(u) ⊙ W_s x_u.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from gssc.checks import fail
from gssc.model import GSSC, model_inputs
from gssc.nn import GraphContext, GSSCLayer, GSSConv
from gssc.nn.norm import in_eval_mode
from gssc.ops import degree_scale


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


def watch_convolution(
    model: GSSC, data: Data, layer: int
) -> tuple[GSSConv, tuple[Tensor, Tensor, Tensor, GraphContext]]:
    """The convolution of a layer and what it is given for this graph, in evaluation mode and without gradients.

    That is x [N, C], already scaled by degree, Φ [1, K, c], the eigenvectors [N, K], and the context.
    """
    conv = layers_of(model)[check_number("layer", layer, len(model.layers), "a layer")].glob
    if not isinstance(conv, GSSConv):
        fail("model", "one with a graph state space convolution (glob gssc or gsc)", f"glob={model.glob}")
    seen: list[Any] = []
    hook = conv.register_forward_pre_hook(lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True)
    with hook, in_eval_mode(model), torch.no_grad():
        model(**model_inputs(data))
        (x, phi, vectors, *_), context = seen[0][0], seen[0][1]["context"]
        if conv.degree_scale is not None and conv.degree_log_scale is not None:
            x = degree_scale(x, conv.degree_scale, conv.degree_log_scale, context.degree)
    return conv, (x, phi, vectors, context)


def check_graph(model: GSSC, data: Data) -> int:
    """The number of nodes of one graph, on the device of the model."""
    if not isinstance(model, GSSC):
        fail("model", "a gssc.GSSC", type(model).__name__)
    if getattr(data, "batch", None) is not None and data.num_graphs != 1:
        fail("data", "one graph", f"a batch of {data.num_graphs}")
    place = next(model.parameters()).device
    if data.edge_index is not None and data.edge_index.device != place:
        fail("data", f"a graph on the device of the model, {place}", str(data.edge_index.device))
    return int(data.num_nodes or 0)


def bare_graph(inputs: Mapping[str, Any], nodes: int) -> Data:
    """A graph with what a model reads of it and nothing else."""
    names = ("x", "edge_index", "eigvals", "eigvecs", "eigmask", "edge_attr", "rwse", "edge_label_index")
    return Data(num_nodes=nodes, **{name: inputs[name] for name in names if inputs.get(name) is not None})


def check_number(name: str, number: int, count: int, what: str) -> int:
    """``number`` as an index of ``count`` things, counted from 0 (or, if negative, from the end)."""
    if isinstance(number, bool) or not isinstance(number, int) or not -count <= number < count:
        fail(name, f"{what} of 0..{count - 1}" if count else f"{what}, of which there is none", number)
    return number % count


def layers_of(model: GSSC) -> list[GSSCLayer]:
    """The layers, by their type."""
    return [layer for layer in model.layers if isinstance(layer, GSSCLayer)]
