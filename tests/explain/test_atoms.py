import pytest
import torch
from explain_cases import ONE_NODE, PATH, make_case, permuted
from torch_geometric.data import Data

from gssc import model_inputs
from gssc.datasets.specs import OGB_ATOM
from gssc.explain import atoms, attributions
from gssc.testing import assert_close

OGB, ZINC = {"name": "mine", "node_features": list(OGB_ATOM)}, {"name": "zinc-12k", "node_features": [28]}


def test_elements_by_the_encodings_of_molecules():
    numbers = torch.tensor([[0], [5], [16], [118]]).expand(-1, 9)
    assert atoms.atom_symbols(OGB, numbers) == ["H", "C", "Cl", "*"]
    assert len(atoms.ELEMENTS.split()) == OGB_ATOM[0]
    assert atoms.atom_symbols(ZINC, torch.tensor([[0], [4], [12]])) == ["C", "C", "N"]
    for about in (ZINC | {"name": "mine"}, OGB | {"node_features": 9}, OGB | {"node_features": None}):
        assert atoms.atom_symbols(about, numbers) is None


@pytest.mark.parametrize("pieces", [1, 40_000])
def test_it_is_what_the_prediction_loses_without_the_atom(float64, monkeypatch, pieces):
    monkeypatch.setattr(atoms, "ROWS", pieces)
    model, data = make_case(PATH)
    added = attributions(model, data)
    assert added.shape == (1, 8)
    model.eval()
    # The encoder is linear: an atom with the mean of the features is encoded as the mean.
    for node in range(8):
        other = data.clone()
        other.x = data.x.clone()
        other.x[node] = data.x.mean(0)
        assert_close(added[0, node], (model(**model_inputs(data)) - model(**model_inputs(other)))[0, 0])


def test_it_follows_the_atoms_and_leaves_the_model_alone(float64):
    model, data = make_case(PATH)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    order, other = permuted(data)
    assert_close(attributions(model, other), attributions(model, data)[:, order])
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.layers[0]._forward_pre_hooks


def test_one_atom_is_the_mean_of_its_graph(float64):
    model, data = make_case(ONE_NODE)
    assert attributions(model, data).tolist() == [[0.0]]


def test_only_graphs_have_parts():
    model, data = make_case(PATH, level="node")
    with pytest.raises(ValueError, match="model: expected one that predicts for graphs"):
        attributions(model, data)
    with pytest.raises(ValueError, match="model: expected one that predicts for graphs, got Linear"):
        attributions(torch.nn.Linear(2, 2), Data(num_nodes=1))
