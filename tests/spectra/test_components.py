"""Components: found, ordered by size, solved in stacks; zero modes exact."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import complete, cycle, disjoint, path, reweighted

from gssc.spectra import components
from gssc.spectra.components import dense_part, find_components, small_parts
from gssc.spectra.operators import build_operator, degrees, smallest_nodes, zero_mode_mass
from gssc.spectra.solve import solve


def shuffled(graph, seed=0):
    order = np.random.default_rng(seed).permutation(graph.shape[0])
    return graph[order][:, order].tocsr()


def test_components_come_smallest_first():
    graph = shuffled(disjoint(path(5), complete(3), sp.csr_array((2, 2)), cycle(4)))
    found = find_components(smallest_nodes(graph))
    assert [nodes.shape for nodes in found] == [(2, 1), (1, 3), (1, 4), (1, 5)]
    assert sorted(np.concatenate([nodes.ravel() for nodes in found])) == list(range(14))
    for members in (members for nodes in found for members in nodes):
        assert graph[members].sum() == graph[members][:, members].sum()
    assert find_components(smallest_nodes(sp.csr_array((0, 0)))) == []


def test_roots_of_the_mass_are_a_zero_mode_of_every_component():
    graph = shuffled(reweighted(disjoint(path(5), complete(7), cycle(4)), -2, 2))
    found = find_components(smallest_nodes(graph))
    for operator in ("sym", "combinatorial"):
        mass = zero_mode_mass(torch.from_numpy(degrees(graph)), operator).numpy()
        for nodes in found:
            mode = np.zeros(16)
            mode[nodes[0]] = np.sqrt(mass[nodes[0]])
            assert np.abs(build_operator(graph, operator) @ mode).max() <= 1e-12 * np.linalg.norm(mode)


def test_stacks_hold_every_component_once(monkeypatch):
    monkeypatch.setattr(components, "STACK_LIMIT", 40)  # several stacks per size
    graph = shuffled(disjoint(*[path(3)] * 7, *[cycle(4)] * 5, complete(9)))
    matrix, found = build_operator(graph, "sym"), find_components(smallest_nodes(graph))
    mass = zero_mode_mass(torch.from_numpy(degrees(graph)), "sym").numpy()
    values = []
    small = [nodes for nodes in found if nodes.shape[1] <= 4]
    for part in small_parts(matrix, np.full(graph.shape[0], 2.0), mass, small, count=3):
        for member in range(part.nodes.shape[0]):
            out = torch.zeros(graph.shape[0], 3, dtype=torch.float64)
            part.write(3 * member + np.arange(3), out, np.arange(3))
            out = out.numpy()
            np.testing.assert_allclose(matrix @ out, out * part.values[member], atol=1e-13)
            assert (part.values[member, 0], part.vectors.shape[2]) == (0.0, 3)
            values.append(part.values[member])
    assert len(values) == 12


def test_eigenvalue_hidden_by_rounding_keeps_its_vector_orthogonal_to_the_zero_mode():
    bridge = sp.csr_array(([1e-19, 1e-19], ([0, 4], [4, 0])), shape=(8, 8))
    graph = (disjoint(complete(4), complete(4)) + bridge).tocsr()
    stack = build_operator(graph, "combinatorial").toarray()[None]
    part = dense_part(np.arange(8)[None], stack, np.array([8.0]), np.ones((1, 8)), 8)
    vectors = part.vectors[0].numpy()
    assert np.abs(part.values[0, :2]).max() <= 10 * np.finfo(float).eps * part.norm
    np.testing.assert_allclose(np.abs(vectors[:, 1]), 8**-0.5, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(8), atol=1e-13)


@pytest.mark.parametrize("operator", ["combinatorial", "adjacency"])
def test_weights_that_are_next_to_nothing_beside_others(operator):
    pair = sp.csr_array(([5e-324, 5e-324], ([0, 1], [1, 0])), shape=(2, 2))
    graph = sp.block_diag([sp.csr_array(complete(2)), pair], format="csr")
    found = solve(sp.csr_array(graph), operator, 13)
    kept = found.vectors[:, found.mask]
    expected = [0, 0, 0, 2] if operator == "combinatorial" else [1, -1, 0, 0]
    assert found.values[found.mask].tolist() == expected
    np.testing.assert_allclose(kept.T @ kept, np.eye(4), atol=1e-13)
