r"""How strongly each node of a graph influences another through the whole model.

.. math:: I(u, v) = \left\| \frac{\partial h_u}{\partial x_v} \right\|_F

with x_v what the encoders make of node v and h_u what the last layer makes of node u. Exact, by automatic
differentiation: the Jacobian of node u needs one backward pass for each of the C channels of h_u, and all of them are
taken at once on C copies of the graph in one batch, whose graphs do not see one another.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from gssc.checks import fail
from gssc.explain.kernel import bare_graph, check_graph, check_number, layers_of
from gssc.model import GSSC, model_inputs
from gssc.nn.norm import in_eval_mode
from gssc.train.display import tracked

ROWS = 40_000  # nodes and edges of the copies that are differentiated at once, about


def influence(model: GSSC, data: Data, node: int | Sequence[int], progress: bool = False) -> Tensor:
    """I(u, ·) for a node u, [N], or for several, [nodes, N]; in evaluation mode, which is undone afterwards.

    Args:
        model: A trained model, with any global part or none; its weights stay as they are.
        data: One graph with all that the model reads of it.
        node: u, counted from 0.
        progress: Show a progress bar, in a terminal.
    """
    norms, _ = influences(model, data, [node] if isinstance(node, int) else node, progress)
    return norms[0] if isinstance(node, int) else norms


def influences(model: GSSC, data: Data, nodes: Sequence[int], progress: bool = False) -> tuple[Tensor, Tensor]:
    """I(u, v) of nodes u, and the sum of |∂h_uc / ∂x_vd| over c and d, with which PyG's ``total_influence`` counts."""
    count = check_graph(model, data)
    targets = [check_number("node", u, count, "a node") for u in nodes]
    # What a batch of one says of its graphs would confuse a batch of copies.
    graph = bare_graph(data.to_dict(), count)
    channels = layers_of(model)[-1].channels
    if not targets:
        return torch.zeros(0, count), torch.zeros(0, count)
    jobs = torch.cartesian_prod(torch.tensor(targets), torch.arange(channels))
    copies = max(1, ROWS // max(1, count + int(data.num_edges or 0)))
    with in_eval_mode(model):
        pieces = tracked(jobs.split(copies), "influence", progress)
        gradients = [_gradients(model, graph, count, piece) for piece in pieces]
    squares, sums = (
        torch.cat(part).unflatten(0, (len(targets), channels)).sum(1) for part in zip(*gradients, strict=True)
    )
    return squares.sqrt(), sums


@contextmanager
def without_global(model: GSSC) -> Iterator[GSSC]:
    """Inside, the same weights with the global part of every layer left out of its sum."""
    if any(layer.local is None for layer in layers_of(model)):
        fail("model", "one with a local part, to be compared without its global part", f"local={model.local}")
    parts = [(layer, layer.glob, layer.norm_global) for layer in layers_of(model)]
    try:
        for layer, _, _ in parts:
            layer.glob, layer.norm_global = None, None
        yield model
    finally:
        for layer, glob, norm in parts:
            layer.glob, layer.norm_global = glob, norm


class Reach(NamedTuple):
    """Influence of one model on one graph, by distance.

    ``distance`` ascends, inf (no path) last; for each there are ``pairs`` (u, v), and mean, 10th, 50th and 90th
    percentile of their influence.
    """

    name: str
    distance: np.ndarray
    pairs: np.ndarray
    mean: np.ndarray
    p10: np.ndarray
    p50: np.ndarray
    p90: np.ndarray


def by_distance(name: str, influence: np.ndarray, hops: np.ndarray) -> Reach:
    """Summary of influences [nodes, N] at distances [nodes, N]."""
    distance = np.unique(hops)
    groups = [influence[hops == d] for d in distance]
    pairs, mean = np.array([group.size for group in groups]), np.array([group.mean() for group in groups])
    return Reach(name, distance, pairs, mean, *np.array([np.percentile(group, (10, 50, 90)) for group in groups]).T)


def mean_distance(sums: np.ndarray, hops: np.ndarray) -> float:
    """How many edges away influence comes from: R of PyG's ``total_influence``, over nodes with a path.

    The mean over u of the distances of all v, weighted by their share of what u hears; both arrays are [nodes, N].
    """
    near = np.isfinite(hops)
    sums, hops = np.where(near, sums, 0.0), np.where(near, hops, 0.0)
    return float(((sums * hops).sum(1) / np.maximum(sums.sum(1), np.finfo(float).tiny)).mean())


def _gradients(model: GSSC, data: Data, nodes: int, jobs: Tensor) -> tuple[Tensor, Tensor]:
    """|∂h_uc/∂x_v|² and Σ_d |∂h_uc/∂x_vd| for pairs (u, c), one copy of the graph for each, [jobs, N]."""
    start: list[Tensor] = []
    end: list[Tensor] = []

    def begin(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        start.append(args[0].detach().requires_grad_())
        return (start[0], *args[1:])

    first = model.layers[0].register_forward_pre_hook(begin)
    last = model.layers[-1].register_forward_hook(lambda module, args, out: end.append(out[0]))
    with first, last, torch.enable_grad():
        model(**model_inputs(Batch.from_data_list([data] * len(jobs))))
        u, channel = jobs.to(end[0].device).T
        own = end[0][nodes * torch.arange(len(jobs), device=u.device) + u, channel]
        (gradient,) = torch.autograd.grad(own.sum(), start[0])
    gradient = gradient.unflatten(0, (len(jobs), nodes))
    return gradient.square().sum(2), gradient.abs().sum(2)
