"""Components: found, ordered by size, solved in stacks; zero modes exact."""

import numpy as np
import scipy.sparse as sp
from closed_forms import complete, cycle, disjoint, path, reweighted

from gssc.spectra import components
from gssc.spectra.components import dense_batch, find_components, kernel_vector, small_parts
from gssc.spectra.operators import build_operator


def shuffled(graph, seed=0):
    order = np.random.default_rng(seed).permutation(graph.shape[0])
    return graph[order][:, order].tocsr()


def test_components_come_smallest_first():
    graph = shuffled(disjoint(path(5), complete(3), sp.csr_array((2, 2)), cycle(4)))
    found = find_components(graph)
    assert found.size.tolist() == [1, 1, 3, 4, 5]
    assert sorted(found.nodes.tolist()) == list(range(14))
    for number, size in enumerate(found.size):
        members = found.members(number)
        assert graph[members].sum() == graph[members][:, members].sum()
        assert members.size == size
    assert find_components(sp.csr_array((0, 0))).size.size == 0


def test_kernel_vector_is_a_unit_zero_mode_on_every_component():
    graph = shuffled(reweighted(disjoint(path(5), complete(7), cycle(4)), -2, 2))
    found = find_components(graph)
    for operator in ("sym", "combinatorial"):
        kernel = kernel_vector(graph, operator, found)
        assert np.abs(build_operator(graph, operator) @ kernel).max() <= 1e-12
        for number in range(3):
            assert abs(np.linalg.norm(kernel[found.members(number)]) - 1.0) <= 1e-14
    assert kernel_vector(graph, "adjacency", found) is None


def test_stacks_hold_every_component_once(monkeypatch):
    monkeypatch.setattr(components, "STACK_LIMIT", 40)  # several stacks per size
    graph = shuffled(disjoint(*[path(3)] * 7, *[cycle(4)] * 5, complete(9)))
    matrix, found = build_operator(graph, "sym"), find_components(graph)
    kernel = kernel_vector(graph, "sym", found)
    values = []
    for part in small_parts(matrix, found, kernel, limit=4, count=3):
        for member in range(part.nodes.shape[0]):
            out = np.zeros((graph.shape[0], 3))
            part.write(member, np.arange(3), out, np.arange(3))
            np.testing.assert_allclose(matrix @ out, out * part.values[member], atol=1e-13)
            assert (part.values[member, 0], part.vectors[0].shape[2]) == (0.0, 3)
            values.append(part.values[member])
    assert len(values) == 12


def test_eigenvalue_hidden_by_rounding_keeps_its_vector_orthogonal_to_the_zero_mode():
    bridge = sp.csr_array(([1e-19, 1e-19], ([0, 4], [4, 0])), shape=(8, 8))
    graph = (disjoint(complete(4), complete(4)) + bridge).tocsr()
    kernel = np.full((1, 8), 8**-0.5)
    values, vectors, accuracy = dense_batch(build_operator(graph, "combinatorial").toarray()[None], kernel)
    assert np.abs(values[0, :2]).max() <= 10 * accuracy[0]
    np.testing.assert_allclose(np.abs(vectors[0, :, 1]), 8**-0.5, atol=1e-12)
    np.testing.assert_allclose(vectors[0].T @ vectors[0], np.eye(8), atol=1e-13)
