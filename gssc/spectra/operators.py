"""From a graph to its symmetric operator, in float64: adjacency, combinatorial or normalised Laplacian.

Conventions: multi-edges add their weights, self-loops stay in A and in D, and the row of a node of degree zero is
zero in every operator, so that an isolated node is a connected component like any other.
"""

from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from gssc.checks import check_choice, check_shape, fail

Operator = Literal["sym", "combinatorial", "adjacency"]
Directed = Literal["symmetrize", "reject"]
OPERATORS = get_args(Operator)
DIRECTED = get_args(Directed)
# Weights are scaled before a solve where the largest is not within 2^±64: squares and norms stay far from the limits.
ORDINARY_EXPONENT = 64
# Weights of the two directions of an edge that differ by less, relative to the larger one, differ by rounding.
SYMMETRY_TOLERANCE = 1e-12


def check_edges(edge_index: Tensor) -> None:
    """Fail unless ``edge_index`` is [2, E], of integers."""
    check_shape("edge_index", edge_index, 2, None)
    if edge_index.dtype.is_floating_point or edge_index.dtype.is_complex or edge_index.dtype == torch.bool:
        fail("edge_index", "an integer tensor", edge_index.dtype)
    check_strided("edge_index", edge_index)


def check_strided(argument: str, tensor: Tensor) -> None:
    """Fail unless every entry of a tensor is stored."""
    if tensor.layout != torch.strided:
        fail(argument, "a dense tensor", f"one of layout {tensor.layout}")


def check_weights(argument: str, weight: Tensor, edges: int) -> Tensor:
    """Real weights [E], which may come as [E, 1], in float64 on the CPU."""
    if not isinstance(weight, Tensor):
        fail(argument, "a tensor", type(weight).__name__)
    check_strided(argument, weight)
    if weight.is_complex():
        fail(argument, "real numbers", weight.dtype)
    if weight.dim() == 2 and weight.shape[1] == 1:
        weight = weight.squeeze(1)
    check_shape(argument, weight, edges)
    return weight.detach().cpu().double()


def adjacency_matrix(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    directed: Directed = "symmetrize",
    graph: Tensor | None = None,
) -> sp.csr_array:
    """The symmetric weighted adjacency matrix A, [n, n].

    Directed input is symmetrised edge by edge: an edge present in one direction only becomes undirected with its
    weight, one present in both takes the mean of the two. ``directed="reject"`` raises instead.

    Where the nodes are those of several graphs, equally many of each, their numbers ``graph`` [B] serve error messages.
    """
    check_choice("directed", directed, DIRECTED)
    check_edges(edge_index)
    ends = edge_index.detach().cpu().numpy()
    if ends.size and (ends.min() < 0 or ends.max() >= num_nodes):
        fail("edge_index", f"node numbers in 0..{num_nodes - 1}", f"{ends.min()}..{ends.max()}")
    if edge_weight is None:
        weight = np.ones(ends.shape[1])
    else:
        weight = check_weights("edge_weight", edge_weight, ends.shape[1]).numpy()
        if not np.isfinite(weight).all():
            fail("edge_weight", "finite numbers", f"{int((~np.isfinite(weight)).sum())} non-finite of {weight.size}")
    a = sp.csr_array((weight, (ends[0], ends[1])), shape=(num_nodes, num_nodes))
    a.sum_duplicates()
    a.eliminate_zeros()
    at = a.T.tocsr()
    if not all(np.array_equal(getattr(a, part), getattr(at, part)) for part in ("indptr", "indices", "data")):
        # Weights of multi-edges that were added in another order differ by rounding.
        asymmetric = (abs(a - at) - SYMMETRY_TOLERANCE * abs(a).maximum(abs(at))) > 0
        if directed == "reject" and asymmetric.nnz:
            name, rows = _of_first_graph(asymmetric, graph)
            fail(f"edge_index{name}", "an undirected graph (directed='reject')", f"{rows.nnz // 2} asymmetric edges")
        # (A + Aᵀ) over the number of directions in which the edge is present.
        present = (a != 0).astype(np.float64) + (at != 0).astype(np.float64)
        present.data = 1.0 / present.data
        a = ((a + at) * present).tocsr()
    if edge_weight is not None:
        _check_sums(a, graph)
    a.sort_indices()
    return a


def _check_sums(a: sp.csr_array, graph: Tensor | None) -> None:
    """Fail unless degrees and norms are finite in the default dtype: twice the sum of a graph's |weights| is.

    Eigenvalues and degrees are attached in that dtype. ``graph`` as for `adjacency_matrix`.
    """
    dtype = torch.get_default_dtype()
    sums = degrees(abs(a)).reshape(1 if graph is None else graph.numel(), -1)
    with np.errstate(over="ignore"):
        total = sums.sum(axis=1)
    wrong = ~(total <= torch.finfo(dtype).max / 2.0)
    if wrong.any():
        at = int(wrong.argmax())
        name = "" if graph is None else f" of graph {int(graph[at])}"
        limit = f"weights whose sum is at most {torch.finfo(dtype).max / 2.0:.2g} ({str(dtype).removeprefix('torch.')})"
        fail(f"edge_weight{name}", limit, f"{total[at]:.3g}")


def scaled(adjacency: sp.csr_array, operator: Operator, graphs: int = 1) -> tuple[sp.csr_array, np.ndarray]:
    """The adjacency matrix with extreme weights divided by 2^e, and e [B], one for each of so many graphs of one size.

    Exactly, but for weights that are 1e-308 of the graph's largest, which vanish. Spectra of A and D - A scale alike,
    that of the normalised operator does not change.
    """
    exponent, magnitude = np.zeros(graphs, dtype=np.int64), np.abs(adjacency.data)
    low, high = np.ldexp(1.0, -ORDINARY_EXPONENT), np.ldexp(1.0, ORDINARY_EXPONENT)
    if operator == "sym" or (low <= magnitude.min(initial=1.0) and magnitude.max(initial=1.0) <= high):
        return adjacency, exponent
    rows = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    graph = rows // (adjacency.shape[0] // graphs)
    largest = np.zeros(graphs)
    np.maximum.at(largest, graph, magnitude)
    extreme = (largest > 0.0) & ~((low <= largest) & (largest <= high))
    exponent[extreme] = np.frexp(largest[extreme])[1]
    out = sp.csr_array((np.ldexp(adjacency.data, -exponent[graph]), adjacency.indices, adjacency.indptr), copy=True)
    out.resize(adjacency.shape)
    out.eliminate_zeros()
    return out, exponent


def _of_first_graph(wrong: sp.csr_array, graph: Tensor | None) -> tuple[str, sp.csr_array]:
    """How an error names the first graph with an entry in this matrix, and the graph's rows of it."""
    if graph is None:
        return "", wrong
    size = wrong.shape[0] // graph.numel()
    at = int(wrong.nonzero()[0].min()) // size
    return f" of graph {int(graph[at])}", wrong[at * size : (at + 1) * size]


def build_operator(
    adjacency: sp.csr_array, operator: Operator, graph: Tensor | None = None, less: float = 0.0
) -> sp.csr_array:
    """The operator whose eigenpairs are wanted, [n, n]: A, D - A, or I - D^-1/2 A D^-1/2.

    Of Laplacians ``less`` so many I are taken. ``graph`` as for `adjacency_matrix`.
    """
    check_choice("operator", operator, OPERATORS)
    if operator == "adjacency":
        return adjacency
    check_weights_nonnegative(adjacency, operator, graph)
    degree = degrees(adjacency)
    if operator == "combinatorial":
        diagonal, matrix = degree, adjacency
    else:
        diagonal, matrix = (degree > 0).astype(np.float64), normalized_adjacency(adjacency)
    n = degree.size
    return (sp.csr_array((diagonal - less, np.arange(n), np.arange(n + 1)), shape=(n, n)) - matrix).tocsr()


def normalized_adjacency(adjacency: sp.csr_array) -> sp.csr_array:
    """D^-1/2 A D^-1/2, zero in the rows of nodes without edges."""
    degree = degrees(adjacency)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    # Entry by entry: two sparse products with diagonal matrices take ten times as long.
    weight = adjacency.data * np.repeat(scale, np.diff(adjacency.indptr)) * scale[adjacency.indices]
    return sp.csr_array((weight, adjacency.indices, adjacency.indptr), shape=adjacency.shape)


def check_weights_nonnegative(adjacency: sp.csr_array, operator: str, graph: Tensor | None = None) -> None:
    """Laplacians and random walks are defined for weights of at least zero."""
    if adjacency.nnz and adjacency.data.min() < 0:
        name, rows = _of_first_graph(adjacency.minimum(0), graph)
        fail(f"edge_weight{name}", f"weights of at least 0 for operator {operator!r}", f"{rows.min():g}")


def degrees(adjacency: sp.csr_array) -> np.ndarray:
    """Row sums of A, [n]."""
    # A product: as a sum along an axis it takes four times as long.
    return adjacency @ np.ones(adjacency.shape[0])


def row_bounds(adjacency: sp.csr_array, operator: Operator) -> np.ndarray:
    """The largest of these numbers [n] bounds |λ|: row sums of |A|, of |D - A|, and of |I - D^-1 A|."""
    if operator == "adjacency":
        return degrees(abs(adjacency))
    degree = degrees(adjacency)
    return 2.0 * (degree if operator == "combinatorial" else np.sign(degree))


def zero_mode_mass(degree: Tensor, operator: Operator) -> Tensor:
    """What the squares of a Laplacian's zero modes are proportional to, of the same shape as the degrees.

    The zero mode of D - A is constant, that of the normalised operator proportional to sqrt(degree).
    """
    return torch.where(degree > 0, degree, 1.0) if operator == "sym" else torch.ones_like(degree)


def smallest_nodes(adjacency: sp.csr_array) -> np.ndarray:
    """For every node of a symmetric adjacency matrix the smallest node of its component, [n]."""
    if not adjacency.shape[0]:
        return np.zeros(0, dtype=np.int64)
    # In a symmetric matrix strong components are the components, found without a transpose.
    number_of_components, component = connected_components(adjacency, directed=True, connection="strong")
    node = np.arange(component.size)
    smallest = np.empty(number_of_components, dtype=np.int64)
    smallest[component[::-1]] = node[::-1]
    return smallest[component]
