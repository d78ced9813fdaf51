"""The other end of a Laplacian's spectrum, and both ends of the normalised one: against NumPy's complete spectra."""

import numpy as np
import pytest
import torch
from closed_forms import complete, cycle, disjoint, path, random_graph, star
from torch_geometric.data import Data

from gssc import LaplacianSpectrum, prepare
from gssc.spectra.operators import build_operator

GRAPHS = {
    "random": random_graph(40, 5),
    "cycle": cycle(12),  # pairs of equal eigenvalues
    "star": star(9),
    "complete": complete(5),
    "components": disjoint(path(7), cycle(5), random_graph(20, 4, seed=1), path(1), path(1)),
    "one": path(1),
}
ENDS = [("combinatorial", "high", "drop"), ("sym", "high", "keep"), ("sym", "both", "keep")]


def as_data(adjacency):
    return Data(edge_index=torch.from_numpy(np.stack(adjacency.nonzero())).long(), num_nodes=adjacency.shape[0])


def wanted(adjacency, operator, which, zero_modes, k):
    """Eigenvalues as they come first, and the projector onto those of whole eigenspaces among the first k."""
    values, vectors = np.linalg.eigh(build_operator(adjacency, operator).toarray())
    values[np.abs(values) < 1e-9] = 0.0
    far = values if which == "high" else np.abs(values - 1.0)
    order = np.lexsort((-values, -far.round(9)))
    if zero_modes == "drop":
        order = order[values[order] > 0.0]
    first = order[:k]
    if len(order) > k:
        first = first[np.abs(values[first] - values[order[k]]) > 1e-9]
    return values[first], vectors[:, first] @ vectors[:, first].T


@pytest.mark.parametrize(("operator", "which", "zero_modes"), ENDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_they_are_those_of_the_complete_spectrum(name, operator, which, zero_modes, float64):
    transform = LaplacianSpectrum(6, operator, zero_modes, which=which)
    values, projector = wanted(GRAPHS[name], operator, which, zero_modes, 6)
    data = as_data(GRAPHS[name])
    for found in (transform(data.clone()), prepare([data], transform, progress=False)[0]):
        assert int(found.eigmask.sum()) == len(values)
        kept = found.eigvals[found.eigmask].numpy()
        assert np.allclose(kept, values, atol=1e-9)
        assert not ((kept != 0.0) & (np.abs(kept) < 1e-9)).any()  # zeros are exact
        assert np.allclose((found.eigvecs @ found.eigvecs.T).numpy(), projector, atol=1e-8)


@pytest.mark.parametrize("solver", ["shift_invert", "chebyshev"])
@pytest.mark.parametrize(("operator", "which", "zero_modes"), ENDS)
def test_large_components_are_solved_from_the_ends_that_are_asked_for(operator, which, zero_modes, solver, float64):
    adjacency = random_graph(150, 6, seed=2)
    spectrum = LaplacianSpectrum(4, operator, zero_modes, which=which, solver=solver).solve(adjacency)
    values, projector = wanted(adjacency, operator, which, zero_modes, 4)
    assert spectrum.certificate.solver.endswith(solver)
    assert np.allclose(spectrum.values[spectrum.mask], values, atol=1e-7)
    assert np.allclose(spectrum.vectors @ spectrum.vectors.T, projector, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"which": "top"}, "which: expected one of 'low', 'high', 'both', got 'top'"),
        ({"which": "high", "operator": "adjacency"}, "which: expected 'low' for operator 'adjacency'"),
        ({"which": "both", "zero_modes": "drop"}, "which: expected 'low' or 'high', but for operator 'sym'"),
        ({"which": "both", "operator": "combinatorial"}, "got 'both' with 'combinatorial', 'keep'"),
    ],
)
def test_what_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        LaplacianSpectrum(k=3, **settings)
