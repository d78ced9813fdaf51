"""Loaders whose batches carry spectra, and spectra that are not those of the graph any more."""

import pickle

import pytest
import torch
from graphs import complete, cycle, edgeless, path
from torch_geometric.data import Batch, HeteroData, InMemoryDataset
from torch_geometric.loader import RandomNodeLoader
from torch_geometric.loader.utils import filter_data
from torch_geometric.transforms import AddSelfLoops, RandomLinkSplit, VirtualNode

from gssc import GSSC, DataLoader, GSSCBlock, LaplacianSpectrum, model_inputs, prepare, replayed
from gssc.testing import permute_nodes


def ready(*graphs):
    return [LaplacianSpectrum(k=4)(graph) for graph in graphs]


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_carry_their_spectra(workers):
    graphs = ready(path(5), cycle(6), path(3))
    for number, batch in enumerate(DataLoader(graphs, batch_size=2, num_workers=workers)):
        plain = Batch.from_data_list(graphs[2 * number : 2 * number + 2])
        assert isinstance(batch, Batch)
        assert torch.equal(batch.batch, plain.batch)
        for name in ("eigvals", "eigvecs", "eigmask"):
            assert torch.equal(getattr(batch.batch.spectrum, name), plain[name])
        assert [graph.num_nodes for graph in batch.to_data_list()] == [
            graph.num_nodes for graph in plain.to_data_list()
        ]


def test_what_is_carried_is_what_the_batch_holds_when_it_is_asked():
    (batch,) = DataLoader(ready(path(5), cycle(6)), batch_size=2)
    assert batch.batch.spectrum.eigvals is batch.eigvals
    moved = batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    assert moved.batch.spectrum.eigvecs.dtype == torch.float64
    again = pickle.loads(pickle.dumps(batch))
    assert torch.equal(again.batch.spectrum.eigvecs, batch.eigvecs)
    assert type(again) is type(batch)


def test_a_batch_keeps_nothing_alive():
    (batch,) = DataLoader(ready(path(5)), batch_size=1)
    vector = batch.batch
    assert not any(value is vector or value is batch for value in vector.spectrum)


def test_graphs_without_spectra_and_other_items_are_as_in_pyg():
    (batch,) = DataLoader([path(5), path(3)], batch_size=2)
    assert not hasattr(batch.batch, "spectrum")
    ((batch, numbers),) = DataLoader([(graph, 1.0) for graph in ready(path(5), path(3))], batch_size=2)
    assert batch.batch.spectrum.eigvals.shape == (2, 4)
    assert numbers.tolist() == [1.0, 1.0]
    hetero = HeteroData()
    hetero["atom"].x = torch.ones(2, 1)
    (batch,) = DataLoader([hetero, hetero], batch_size=2)
    assert batch["atom"].batch.tolist() == [0, 0, 1, 1]


def featured(graph):
    graph.x = torch.randn(graph.num_nodes, 3)
    return graph


def large():
    return LaplacianSpectrum(k=4)(featured(complete(9)))


def sampled(graph):
    """What PyG's NeighborLoader makes of the nodes 2, 5 and 7 (its sampler is an extension)."""
    edge = torch.tensor([0, 3])
    return filter_data(graph, torch.tensor([2, 5, 7]), torch.tensor([0, 1]), torch.tensor([1, 2]), edge, None)


STALE = {
    "subgraph": lambda graph: graph.subgraph(torch.tensor([0, 3, 4])),
    "edge subgraph": lambda graph: graph.edge_subgraph(torch.arange(6)),
    "neighbours": sampled,
    "random nodes": lambda graph: next(iter(RandomNodeLoader(graph, num_parts=3))),
    "self loops": AddSelfLoops(),
    "a further node": VirtualNode(),
    "link split": lambda graph: RandomLinkSplit(neg_sampling_ratio=0.0)(graph)[0],
    "a batch": lambda graph: Batch.from_data_list([graph, graph.subgraph(torch.tensor([0, 3, 4]))]),
    "of a dataset": lambda graph: InMemoryDatasetOf([graph, large()])[0].subgraph(torch.tensor([1, 2])),
    "without edges": lambda _: LaplacianSpectrum(k=4)(featured(edgeless(5))).subgraph(torch.tensor([1, 2])),
    "prepared": lambda _: prepare([featured(complete(5))], LaplacianSpectrum(k=4), progress=False)[0].subgraph(
        torch.arange(3)
    ),
}


class InMemoryDatasetOf(InMemoryDataset):
    def __init__(self, graphs):
        super().__init__()
        self.data, self.slices = self.collate(graphs)


@pytest.mark.parametrize("change", list(STALE))
def test_a_spectrum_of_another_graph_is_noticed(change):
    data = STALE[change](large())
    refused = r"spectrum: expected that of these \d+ nodes, \d+ edges .*, got that of \d+ nodes, \d+ edges"
    block, model = GSSCBlock(3), GSSC(1, 4, 1, node_features=3)
    for use in (
        lambda: block(data.x, data.edge_index, data.batch, spectrum=data),
        lambda: model(**model_inputs(data)),
        lambda: next(iter(DataLoader([data], batch_size=1))).batch,
    )[: 2 if isinstance(data, Batch) else 3]:
        with pytest.raises(ValueError, match=refused) as error:
            use()
        assert "\n" not in str(error.value)


def test_to_keep_the_spectrum_of_the_whole_graph_one_says_so():
    data = sampled(large())
    del data.eigsize
    assert GSSCBlock(3)(data.x, data.edge_index, spectrum=data).shape == (3, 3)


@pytest.mark.parametrize("prepared", [False, True])
def test_graphs_that_are_stored_batched_and_moved_stay_as_they_are(prepared):
    graphs = [path(5), cycle(6), edgeless(2), edgeless(1)]
    transform = LaplacianSpectrum(k=4)
    if prepared:
        graphs = prepare(graphs, transform, progress=False)
        stored = prepare(InMemoryDatasetOf([path(5), cycle(6)]), transform, progress=False)
    else:
        graphs = [transform(graph) for graph in graphs]
        stored = InMemoryDatasetOf(graphs)
    permuted = permute_nodes(graphs[0], torch.randperm(5))
    batch = Batch.from_data_list(list(stored))
    for data in (*graphs, *stored, batch, Batch.from_data_list([batch, batch]), stored[:1][0], permuted):
        for state in (data, data.clone(), data.to("cpu"), pickle.loads(pickle.dumps(data))):
            assert model_inputs(state)["eigvals"] is not None


def test_a_replayed_step_notices_too():
    model = GSSC(1, 4, 1, node_features=3)
    with pytest.warns(UserWarning, match="steps run as they are"):
        step = replayed(lambda batch: model(**model_inputs(batch)), model)
    with pytest.raises(ValueError, match="spectrum: expected that of these"):
        step(sampled(large()))
