import pytest
import torch
from graphs import edgeless, path, random_graph
from torch_geometric.data import Batch

from gssc import ExpanderGraph, LaplacianSpectrum, prepare


def test_every_column_is_a_permutation_and_repeats():
    data = ExpanderGraph(degree=8)(random_graph(50))
    assert data.expander.shape == (50, 4)
    assert torch.equal(data.expander.sort(0).values, torch.arange(50).unsqueeze(1).expand(50, 4))
    again, other = ExpanderGraph(degree=8)(path(50)), ExpanderGraph(degree=8, seed=1)(path(50))
    assert torch.equal(again.expander, data.expander)
    assert not torch.equal(other.expander, data.expander)


def test_it_is_an_expander():
    """The second largest eigenvalue of a random regular graph is about 2 sqrt(d - 1) (Friedman), far below d."""
    rows = ExpanderGraph(degree=6)(edgeless(400)).expander
    adjacency = torch.zeros(400, 400).index_put_((torch.arange(400)[:, None], rows), torch.ones(()), accumulate=True)
    values = torch.linalg.eigvalsh(adjacency + adjacency.T)
    assert float(values[-1]) == pytest.approx(6.0, abs=1e-4)
    assert max(float(values[-2]), -float(values[0])) < 4.9


def test_batches_and_datasets_carry_it():
    graphs = [random_graph(7), edgeless(1), path(4)]
    whole = Batch.from_data_list([ExpanderGraph()(graph.clone()) for graph in graphs])
    for spectrum in (None, LaplacianSpectrum(k=3)):
        ready = prepare(graphs, spectrum, expander=ExpanderGraph(), progress=False)
        assert torch.equal(Batch.from_data_list(ready).expander, whole.expander)
        assert ("eigvals" in ready[0]) == (spectrum is not None)
    assert "expander" not in graphs[0]


def test_bad_input():
    with pytest.raises(ValueError, match="degree: expected an even number from 2, got 5"):
        ExpanderGraph(degree=5)
