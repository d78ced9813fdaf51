"""Complete spectra of a chunk: exact zero modes, honest measurements, and nothing that depends on the neighbours."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import zero_mode_basis

from gssc.spectra.dense_pairs import complete_pairs, exact_zero_modes
from gssc.spectra.operators import OPERATORS, build_operator, zero_mode_mass
from gssc.spectra.truncation import DENSE_ACCURACY

M = 12


def matrix(n: int, edges: list[tuple[int, int]], weight: float = 1.0) -> torch.Tensor:
    out = torch.zeros(M, M, dtype=torch.float64)
    for u, v in edges:
        out[u, v] = out[v, u] = weight
    assert not out[n:].any()
    return out


# Sizes, and graphs that are connected, in pieces, padded, without edges, full, and heavy.
GRAPHS = [
    (12, matrix(12, [(i, i + 1) for i in range(11)])),
    (10, matrix(10, [(0, 1), (1, 2), (2, 0), (4, 5), (7, 8), (8, 9)])),
    (9, matrix(9, [(i, j) for i in range(9) for j in range(i)])),
    (12, matrix(12, [])),
    (11, matrix(11, [(i, (i + 3) % 11) for i in range(11)], 1e6)),
    (12, matrix(12, [(i, i + 6) for i in range(6)], 0.1)),
]


def component_numbers(n: int, adjacency: torch.Tensor) -> torch.Tensor:
    """By first node, -1 for padding."""
    label = torch.full((M,), -1)
    label[:n] = torch.from_numpy(zero_mode_basis(sp.csr_array(adjacency[:n, :n].numpy()), "combinatorial").argmax(1))
    return label


def solved(which: list[int], operator: str):
    count = torch.tensor([GRAPHS[i][0] for i in which])
    adjacency = torch.stack([GRAPHS[i][1] for i in which])
    operators = [build_operator(sp.csr_array(a.numpy()), operator).toarray() for a in adjacency]
    matrices = torch.from_numpy(np.stack(operators))
    mass = label = None
    if operator != "adjacency":
        mass = zero_mode_mass(adjacency.sum(1), operator)
        label = torch.stack([component_numbers(*GRAPHS[i]) for i in which])
    return (
        complete_pairs(matrices, 2 * matrices.abs().sum(1).amax(1), count, mass, label, torch.tensor(which)),
        matrices,
        adjacency,
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_pairs_are_complete_and_measured_against_the_operator(operator) -> None:
    pairs, operators, adjacency = solved(list(range(len(GRAPHS))), operator)
    for g, (n, _) in enumerate(GRAPHS):
        exact = operators[g, :n, :n].numpy()
        scale = max(1.0, np.abs(exact).sum(1).max())
        values = pairs.values[g, :n].numpy()
        np.testing.assert_allclose(values, np.linalg.eigvalsh(exact), atol=1e-13 * scale)
        rows = pairs.rows[g][pairs.place[g, :n]].numpy()
        assert not rows[:, n:].any()
        vectors = rows[:, :n].T
        defect = np.abs(vectors.T @ vectors - np.eye(n)).max()
        assert defect <= float(pairs.orthogonality[g]) + 1e-15
        assert float(pairs.orthogonality[g]) < 1e-13
        residual = np.linalg.norm(exact @ vectors - vectors * values, axis=0)
        measured = pairs.error[g][pairs.place[g, :n]].numpy()
        np.testing.assert_allclose(residual, measured, atol=1e-15 * scale)
        assert measured.max() < 1e-13 * scale
        assert DENSE_ACCURACY * float(pairs.norm[g]) >= measured[values != 0].max(initial=0.0)
        if operator != "adjacency":
            basis = zero_mode_basis(sp.csr_array(adjacency[g, :n, :n].numpy()), operator)
            assert (values[: basis.shape[1]] == 0.0).all()
            np.testing.assert_allclose(vectors[:, : basis.shape[1]], basis, rtol=1e-14)


@pytest.mark.parametrize("operator", OPERATORS)
def test_bytes_do_not_depend_on_graphs_in_pieces_beside(operator) -> None:
    together, _, _ = solved(list(range(len(GRAPHS))), operator)
    for g, (n, _) in enumerate(GRAPHS):
        alone, _, _ = solved([g], operator)
        for name in ("values", "error", "place"):
            assert torch.equal(getattr(alone, name)[0, :n], getattr(together, name)[g, :n])
        assert torch.equal(alone.rows[0], together.rows[g])
        assert torch.equal(alone.norm[0], together.norm[g])


@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
def test_zero_modes_equal_those_of_one_graph(operator) -> None:
    adjacency = torch.stack([a for _, a in GRAPHS])
    label = torch.stack([component_numbers(n, a) for n, a in GRAPHS])
    got = exact_zero_modes(label, zero_mode_mass(adjacency.sum(1), operator))
    for modes, (n, a) in zip(got, GRAPHS, strict=True):
        basis = zero_mode_basis(sp.csr_array(a[:n, :n].numpy()), operator)
        components = basis.shape[1]
        np.testing.assert_allclose(modes[:components, :n].T.numpy(), basis, rtol=1e-14)
        assert (modes[components:] == 0).all()
        assert (modes[:, n:] == 0).all()
