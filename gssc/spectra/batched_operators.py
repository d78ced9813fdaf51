"""Operators, zero modes and random walks of a chunk of graphs: dense float64 tensors [B, m, m], on any device.

`gssc.spectra.operators` and `gssc.spectra.random_walk` for many graphs at once, with the same conventions. Rows and
columns past a graph's own nodes are zero. ``graph [B]`` numbers the graphs of the chunk for error messages.
"""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import fail
from gssc.spectra.operators import SYMMETRY_TOLERANCE, Directed, Operator, smallest_nodes, zero_mode_mass


def symmetric_batched(adjacency: Tensor, directed: Directed, graph: Tensor) -> Tensor:
    """As `adjacency_matrix`: an edge in one direction counts in both, one in both directions takes the mean."""
    transposed = adjacency.mT
    if torch.equal(adjacency, transposed):
        return adjacency
    larger = torch.maximum(adjacency.abs(), transposed.abs())
    count = ((adjacency - transposed).abs() > SYMMETRY_TOLERANCE * larger).sum((1, 2)) // 2
    if directed == "reject" and bool(count.any()):
        at = int(count.nonzero()[0])
        fail(
            f"edge_index of graph {int(graph[at])}",
            "an undirected graph (directed='reject')",
            f"{int(count[at])} asymmetric edges",
        )
    present = (adjacency != 0).to(adjacency.dtype) + (transposed != 0).to(adjacency.dtype)
    return (adjacency + transposed) / present.clamp(min=1.0)


def check_nonnegative_batched(adjacency: Tensor, graph: Tensor, operator: str) -> None:
    """As `check_weights_nonnegative`, naming the graph."""
    lowest = adjacency.amin((1, 2))
    if bool((lowest < 0).any()):
        at = int((lowest < 0).nonzero()[0])
        fail(
            f"edge_weight of graph {int(graph[at])}",
            f"weights of at least 0 for operator {operator!r}",
            f"{float(lowest[at]):g}",
        )


def operator_batched(adjacency: Tensor, degree: Tensor, operator: Operator) -> Tensor:
    """A, D - A or I - D^-1/2 A D^-1/2 of a chunk, [B, m, m]; rows of nodes without edges are zero."""
    if operator == "adjacency":
        return adjacency
    out = -adjacency if operator == "combinatorial" else _walk_matrix(adjacency, degree).neg_()
    out.diagonal(dim1=1, dim2=2).add_(degree if operator == "combinatorial" else degree > 0)
    return out


def components_batched(adjacency: Tensor, valid: Tensor, hangs: Tensor) -> Tensor:
    """The component of each node, numbered within its graph by first node, [B, m]; -1 where ``valid`` is False.

    ``hangs`` [B, m] is True for the first node of each graph, and may be for nodes with a neighbour of smaller number.
    A graph whose nodes all hang is connected, and atoms mostly come in such an order; if one does not, the chunk is
    searched. ``valid`` and ``hangs`` are on the host, as is the search; the result is where ``adjacency`` is.
    """
    batch, size = valid.shape
    label = valid.long() - 1
    if torch.equal(hangs, valid):
        return label.to(adjacency.device)
    graph, source, target = adjacency.nonzero().T.cpu()
    indptr = np.zeros(batch * size + 1, dtype=np.int64)
    np.cumsum(np.bincount((graph * size + source).numpy(), minlength=batch * size), out=indptr[1:])
    entries = (np.ones(target.numel()), (graph * size + target).numpy(), indptr)
    first_node = torch.from_numpy(smallest_nodes(sp.csr_array(entries, shape=(batch * size, batch * size))))
    # Counted along the graph, first nodes number the components.
    number = (first_node == torch.arange(batch * size)).view(batch, size).cumsum(1) - 1
    return torch.where(valid, number.view(-1)[first_node].view(batch, size), label).to(adjacency.device)


def return_probabilities_batched(
    adjacency: Tensor, degree: Tensor, steps: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    """diag((D^-1 A)^t) for t = 1 … steps of a chunk, [B, m, steps], multiplied in ``dtype``.

    All terms are at least zero, so that nothing cancels and the precision of the result will do for the powers.

    With S = D^-1/2 A D^-1/2 and p about sqrt(steps): the diagonals of S, …, S^p, and then, since S is symmetric,
    diag(S^(qp+r)) = colsum(S^qp ⊙ S^r). That takes about 2 sqrt(steps) products instead of steps.
    """
    walk = _walk_matrix(adjacency, degree).to(dtype)
    small = [walk]
    while len(small) ** 2 < steps:
        small.append(small[-1] @ walk)
    p = len(small)
    out = walk.new_empty(steps, *degree.shape)
    for t, power in enumerate(small[:steps]):
        out[t] = power.diagonal(dim1=1, dim2=2)
    large, product = small[-1], torch.empty_like(walk)
    for t in range(p, steps):
        if t % p == 0 and t > p:
            large = large @ small[-1]
        torch.sum(torch.mul(large, small[t % p], out=product), dim=1, out=out[t])
    return out.permute(1, 2, 0)


def _walk_matrix(adjacency: Tensor, degree: Tensor) -> Tensor:
    scale = degree.rsqrt().masked_fill_(degree <= 0.0, 0.0)
    return (adjacency * scale.unsqueeze(1)).mul_(scale.unsqueeze(2))


def zero_modes_batched(label: Tensor, degree: Tensor, operator: Operator) -> Tensor:
    """The exact kernels of a chunk of Laplacians as orthonormal rows, [B, most components, m].

    One for each component, proportional to the square root of its `zero_mode_mass`. ``label [B, m]`` numbers the
    component of each node within its graph, -1 for padding.
    """
    number = torch.arange(int(label.max()) + 1, device=label.device)
    member = (label.unsqueeze(1) == number.unsqueeze(1)) * zero_mode_mass(degree, operator).unsqueeze(1)
    total = member.sum(2, keepdim=True)
    return member.div_(total.masked_fill_(total == 0.0, 1.0)).sqrt_()
