"""Dense chunks against the sparse operators of one graph, padding included."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import zero_mode_basis

from gssc.spectra.batched_operators import (
    check_nonnegative_batched,
    components_batched,
    operator_batched,
    return_probabilities_batched,
    symmetric_batched,
    zero_modes_batched,
)
from gssc.spectra.operators import OPERATORS, adjacency_matrix, build_operator
from gssc.spectra.random_walk import return_probabilities

SIZES, M = (3, 8, 6), 8


def chunk(directed: bool = False) -> torch.Tensor:
    """Weighted graphs of 3, 8 and 6 nodes with loops and isolated nodes, padded to 8."""
    generator = torch.Generator().manual_seed(0)
    out = torch.zeros(len(SIZES), M, M, dtype=torch.float64)
    for matrix, n in zip(out, SIZES, strict=True):
        a = torch.rand(n, n, generator=generator, dtype=torch.float64)
        matrix[:n, :n] = torch.where(torch.rand(n, n, generator=generator) < 0.3, a, 0.0)
    return out if directed else out + out.mT


def sparse(matrix: torch.Tensor, n: int) -> sp.csr_array:
    return sp.csr_array(matrix[:n, :n].numpy())


def test_directed_chunks_become_symmetric_like_one_graph() -> None:
    a = chunk(directed=True)
    got = symmetric_batched(a, "symmetrize", torch.arange(3))
    for i, n in enumerate(SIZES):
        edges = a[i, :n, :n].nonzero().T
        want = adjacency_matrix(edges, a[i][edges[0], edges[1]], n).toarray()
        np.testing.assert_allclose(got[i, :n, :n].numpy(), want, rtol=1e-15)
    assert torch.equal(symmetric_batched(chunk(), "reject", torch.arange(3)), chunk())
    with pytest.raises(ValueError, match="edge_index of graph 7: expected an undirected graph"):
        symmetric_batched(a, "reject", torch.tensor([7, 8, 9]))


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_equal_those_of_one_graph(operator) -> None:
    a = chunk()
    got = operator_batched(a, a.sum(2), operator)
    for i, n in enumerate(SIZES):
        np.testing.assert_allclose(
            got[i, :n, :n].numpy(), build_operator(sparse(a[i], n), operator).toarray(), atol=1e-15
        )
        assert (got[i, n:] == 0).all()


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9, 16, 20, 21])
def test_walks_equal_those_of_one_graph(steps: int) -> None:
    a = chunk()
    got = return_probabilities_batched(a, a.sum(2), steps)
    assert got.shape == (3, M, steps)
    for i, n in enumerate(SIZES):
        np.testing.assert_allclose(got[i, :n].numpy(), return_probabilities(sparse(a[i], n), steps), atol=1e-14)
        assert (got[i, n:] == 0).all()


@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
def test_zero_modes_equal_those_of_one_graph(operator) -> None:
    a = chunk()
    bases = [zero_mode_basis(sparse(a[i], n), operator) for i, n in enumerate(SIZES)]
    label = torch.full((3, M), -1)
    for row, basis in zip(label, bases, strict=True):
        row[: len(basis)] = torch.from_numpy(basis.argmax(1))
    got = zero_modes_batched(label, a.sum(2), operator)
    for i, basis in enumerate(bases):
        n, components = basis.shape
        np.testing.assert_allclose(got[i, :components, :n].T.numpy(), basis, rtol=1e-14)
        assert (got[i, components:] == 0).all()
        assert (got[i, :, n:] == 0).all()


def test_negative_weights_name_their_graph() -> None:
    a = chunk()
    check_nonnegative_batched(a, torch.arange(3), "sym")
    a[1, 0, 1] = -2.0
    with pytest.raises(
        ValueError, match="edge_weight of graph 5: expected weights of at least 0 for operator 'sym', got -2"
    ):
        check_nonnegative_batched(a, torch.tensor([4, 5, 6]), "sym")


def test_components_are_numbered_by_their_first_nodes() -> None:
    """Whether they are searched, or all nodes are known to hang on one before them."""
    a = torch.zeros(3, M, M, dtype=torch.float64)
    for u, v in [(0, 1), (1, 2), (0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]:
        a[0, u, v] = a[0, v, u] = 1.0
    for u, v in [(0, 5), (5, 2), (1, 4), (3, 3)]:
        a[1, u, v] = a[1, v, u] = 0.5
    valid = torch.arange(M) < torch.tensor([8, 6, 1]).unsqueeze(1)
    first = torch.zeros_like(valid)
    first[:, 0] = True
    want = torch.tensor([[0] * 8, [0, 1, 0, 2, 1, 0, -1, -1], [0] + [-1] * 7])
    assert torch.equal(components_batched(a, valid, first), want)
    whole = [0, 2]
    hangs = valid[whole]
    for rows in (hangs, first[whole]):
        assert torch.equal(components_batched(a[whole], valid[whole], rows), want[whole])
