"""Permutation equivariance, sign and basis invariance, batch independence: of the convolution and of the model."""

import pytest
import torch
from graphs import complete, cycle, edgeless, graphs, path, star, two_triangles
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.transforms import Compose

from gssc import (
    GSSC,
    DeepSetPhi,
    ElementwisePhi,
    GSSConv,
    LaplacianSpectrum,
    PolynomialPhi,
    RandomWalkSE,
    TransformerPhi,
    model_inputs,
)
from gssc.testing import (
    assert_basis_invariant,
    assert_batch_independent,
    assert_close,
    assert_no_gradient_across_graphs,
    assert_permutation_equivariant,
    assert_sign_invariant,
)

C = 4
PHIS = {
    "deepset": DeepSetPhi,
    "elementwise": ElementwisePhi,
    "polynomial": PolynomialPhi,
    "transformer": TransformerPhi,
}
# Selection is of degree six in the eigenvectors: rounding grows accordingly. Tolerances per dtype, never loosened.
CONV_TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}


class Convolution:
    """φ and a convolution as a function of ``Data``."""

    def __init__(self, dtype=torch.float64, phi="deepset", **settings):
        self.phi, self.conv = PHIS[phi](C).to(dtype), GSSConv(C, **settings).to(dtype)

    def __call__(self, data):
        return self.conv(data.x, self.phi(data.eigvals, data.eigmask), data.eigvecs, data.get("batch"))


def with_features(data, dtype=torch.float64):
    generator = torch.Generator().manual_seed(data.num_nodes)
    data.x = torch.randn(data.num_nodes, C, generator=generator, dtype=torch.float64).to(dtype)
    data.edge_attr = torch.ones(data.num_edges, 2, dtype=dtype)
    return data


transforms = st.builds(
    LaplacianSpectrum,
    k=st.integers(1, 14),
    operator=st.sampled_from(["sym", "combinatorial", "adjacency"]),
    zero_modes=st.sampled_from(["keep", "drop"]),
)
convolutions = st.fixed_dictionaries(
    {
        "kernel": st.sampled_from(["channel", "shared"]),
        "selective": st.booleans(),
        "self_term": st.booleans(),
        "phi": st.sampled_from(sorted(PHIS)),
    }
)


@pytest.mark.usefixtures("float64")
@given(graphs(), transforms, convolutions)
def test_convolution_in_float64(data, transform, settings):
    function = Convolution(**settings)
    data = with_features(data)
    tolerance = CONV_TOLERANCE[torch.float64]
    assert_permutation_equivariant(function, data, transform, tolerance=tolerance)
    assert_sign_invariant(function, transform(data), tolerance=tolerance)
    assert_basis_invariant(function, transform(data), tolerance=tolerance)


@given(graphs(), transforms, convolutions)
def test_convolution_in_float32(data, transform, settings):
    function = Convolution(dtype=torch.float32, **settings)
    data = with_features(data, torch.float32)
    tolerance = CONV_TOLERANCE[torch.float32]
    assert_permutation_equivariant(function, data, transform, tolerance=tolerance)
    assert_sign_invariant(function, transform(data), tolerance=tolerance)
    assert_basis_invariant(function, transform(data), tolerance=tolerance)


UGLY = {
    "one node": edgeless(1),
    "no edges": edgeless(5),
    "complete": complete(7),
    "star": star(8),
    "cycle": cycle(8),
    "path": path(6),
    "union": two_triangles(),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("data", UGLY.values(), ids=UGLY.keys())
def test_ugly_graphs_with_few_and_many_frequencies(data, selective):
    data = with_features(data.clone())
    for k in (2, 5, 16):
        transform = LaplacianSpectrum(k=k)
        function = Convolution(selective=selective)
        assert_permutation_equivariant(function, data, transform)
        assert_basis_invariant(function, transform(data))


@pytest.mark.usefixtures("float64")
@given(st.lists(graphs(max_nodes=8), min_size=1, max_size=4), transforms, convolutions)
def test_convolution_does_not_see_other_graphs(parts, transform, settings):
    function = Convolution(**settings)
    prepared = [with_features(transform(Data(edge_index=part.edge_index, num_nodes=part.num_nodes))) for part in parts]
    assert_batch_independent(function, prepared)
    assert_no_gradient_across_graphs(function, prepared)


def trained_statistics(model, data):
    """Move the running statistics away from their start, as training would, then freeze them."""
    model.train()
    for _ in range(3):
        model(**model_inputs(data))
    return model.eval()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"selective": True, "kernel": "shared"},
        {"local": "gine", "degree_scaling": True, "out_proj": True},
        {"glob": "attention", "local": "gcn"},
        {"local": "pna", "degree_histogram": [2, 5, 9, 1]},
        {"local": "gat", "glob": "gsc"},
        {"rwse": 5, "rwse_channels": 3, "diagonal_channels": 2, "phi": "transformer", "jumping_knowledge": True},
    ],
    ids=["default", "selective", "released", "attention", "pna", "gat", "encodings"],
)
@pytest.mark.parametrize("level", ["node", "graph", "edge"])
def test_model(level, settings):
    transform = Compose([LaplacianSpectrum(k=5), RandomWalkSE(5)])
    model = GSSC(3, 8, 2, node_features=C, edge_features=2, level=level, **settings)
    parts = [with_features(part.clone()) for part in UGLY.values()]
    for part in parts if level == "edge" else ():
        part.edge_label_index = torch.randint(part.num_nodes, (2, 6), generator=torch.Generator().manual_seed(0))
    trained_statistics(model, transform(parts[2]))

    def function(data):
        return model(**model_inputs(data))

    for part in parts:
        assert_permutation_equivariant(function, part, transform, level=level)
        assert_sign_invariant(function, transform(part))
        assert_basis_invariant(function, transform(part))
    prepared = [transform(part) for part in parts]
    assert_batch_independent(function, prepared)
    if level == "node":
        assert_no_gradient_across_graphs(function, prepared)
    if level == "edge":
        for data in prepared:
            turned, moved = data.clone(), data.clone()
            turned.edge_label_index, moved.edge_label_index = (
                data.edge_label_index.flip(0),
                data.edge_label_index.flip(1),
            )
            assert_close(function(turned), function(data), "output with the ends of pairs swapped")
            assert_close(function(moved).flip(0), function(data), "output with pairs in another order")
