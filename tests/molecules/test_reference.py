"""The padded dense model is the model."""

import copy

import pytest
import torch
from molecule_samples import SIZES, TASK, molecule_model, molecule_store

from benchmarks.molecule_reference import DenseBatch, dense_model, dropout
from gssc.molecules.data import molecule_data
from gssc.testing import assert_close

pytestmark = pytest.mark.usefixtures("float64")
EXACT = 1e-12


@pytest.mark.parametrize(
    "settings",
    [{}, {"kernel": "channel", "out_proj": False, "pool": "mean"}, {"self_term": False, "degree_scaling": False}],
    ids=str,
)
@pytest.mark.parametrize("training", [True, False])
def test_agrees_with_the_model(settings, training):
    store = molecule_store()
    model = molecule_model(**settings).train(training)
    twin = copy.deepcopy(model)
    graphs = torch.tensor([3, 0, 5, 2, 7])
    batch = store.batch(graphs)
    expected = model(**batch.inputs)
    # Two slots stay empty.
    slots = torch.cat([graphs, torch.tensor([store.num_graphs] * 2)])
    dense = DenseBatch(molecule_data(store, model, TASK), slots, 32)
    actual = dense_model(twin, dense)[: graphs.numel()]
    assert_close(actual, expected, "outputs", EXACT)
    (expected - batch.y).abs().mean().backward()
    (actual - dense.targets[: graphs.numel()]).abs().mean().backward()
    assert dense.targets[graphs.numel() :].isnan().all()
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert_close(q.grad, p.grad, name, 10 * EXACT)
    for (name, p), q in zip(model.named_buffers(), twin.buffers(), strict=True):
        assert_close(q, p, name, EXACT)


def test_moments_of_random_walks_are_those_of_each_graph():
    data = molecule_data(molecule_store(), molecule_model(), TASK)
    for g, n in enumerate(SIZES):
        rows = data.rwse[data.ptr[g] : data.ptr[g + 1]]
        assert rows.shape[0] == n
        assert_close(data.rwse_moments[g, 0], rows.mean(0), "mean", EXACT)
        assert_close(data.rwse_moments[g, 1], (rows - rows.mean(0)).square().sum(0), "squares", EXACT)
    assert not data.rwse_moments[-1].any()


def test_two_edges_between_the_same_nodes_are_refused():
    store = molecule_store((3,))
    store.edge_index[1] = store.edge_index[0]
    with pytest.raises(ValueError, match="edge_index: expected at most one edge from a node to another, got several"):
        molecule_data(store, molecule_model(), TASK)


def test_dropout_keeps_the_right_share_and_depends_on_key_and_salt():
    x = torch.ones(8, 64, 64)
    out = dropout(x, 0.6, 12345, 3)
    assert abs(float((out > 0).double().mean()) - 0.4) < 0.01
    assert abs(float(out.mean()) - 1.0) < 0.03
    # As unlike as independent ones: 0.4² + 0.6² of the positions agree.
    for key, salt in ((12346, 3), (12345, 4), (12345 + 2**31, 3)):
        agree = float(((dropout(x, 0.6, key, salt) > 0) == (out > 0)).double().mean())
        assert abs(agree - 0.52) < 0.01
    assert torch.equal(dropout(x, 0.6, 12345, 3), out)
    assert torch.equal(dropout(x, 0.6, None, 3), x)
