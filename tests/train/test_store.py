import pytest
import torch
from graphs import edgeless, random_graph
from torch_geometric.data import Batch, Data

from gssc import model_inputs
from gssc.datasets.flat import flatten
from gssc.padding import Shape
from gssc.spectra import LaplacianSpectrum, RandomWalkSE, prepare_spectra
from gssc.tasks import Task
from gssc.train.store import GraphStore

CPU = torch.device("cpu")
K = 3


def some_graphs(level):
    """Graphs of several sizes; one without edges, one with a loop, one without nodes."""
    graphs = [random_graph(n, 0.5, seed=n) for n in (5, 1, 7, 4)] + [edgeless(3), edgeless(0)]
    loop = torch.cat([graphs[3].edge_index, torch.tensor([[2], [2]])], dim=1)
    graphs[3] = Data(edge_index=loop, num_nodes=4)
    for graph in graphs:
        n, edges = graph.num_nodes, graph.edge_index.shape[1]
        graph.x, graph.edge_attr = torch.randn(n, 2), torch.randint(0, 9, (edges, 1))
        graph.y = torch.randn(n if level == "node" else 1, 1)
        graph.edge_index = graph.edge_index[:, order := torch.randperm(edges)]
        graph.edge_attr = graph.edge_attr[order]
    return graphs


def make_store(graphs, level, mask=None):
    flat = flatten(graphs, Task(level, "regression", 1, "mae")).sorted_by_destination()
    if mask is not None:
        from dataclasses import replace

        flat = replace(flat, mask=mask)
    made = prepare_spectra(flat.packed(), LaplacianSpectrum(K), RandomWalkSE(2), cache=None).flat
    spectra = {"eigvals": made.eigvals, "eigvecs": made.eigvecs, "eigmask": made.eigmask, "rwse": made.rwse}
    return GraphStore(flat, spectra, CPU, level == "node"), spectra


def pyg_batch(graphs, spectra, numbers):
    """The same batch by PyG's collate function, each graph carrying its spectrum, edges sorted by destination."""
    ptr = [0]
    for graph in graphs:
        ptr.append(ptr[-1] + graph.num_nodes)
    chosen = []
    for number in numbers:
        graph, own = graphs[number].clone(), slice(ptr[number], ptr[number + 1])
        graph.eigvals, graph.eigmask = spectra["eigvals"][number : number + 1], spectra["eigmask"][number : number + 1]
        graph.eigvecs, graph.rwse = spectra["eigvecs"][own], spectra["rwse"][own]
        chosen.append(graph)
    batch = Batch.from_data_list(chosen)
    order = torch.argsort(batch.edge_index[1] * max(batch.num_nodes, 1) + batch.edge_index[0], stable=True)
    batch.edge_index, batch.edge_attr = batch.edge_index[:, order], batch.edge_attr[order]
    return batch


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("numbers", [[0], [2, 0, 3], [5], [1, 5, 4], [3, 3, 0, 3], [0, 1, 2, 3, 4, 5]])
def test_a_batch_is_that_of_pyg(level, numbers):
    graphs = some_graphs(level)
    store, spectra = make_store(graphs, level)
    expected = pyg_batch(graphs, spectra, numbers)
    batch = store.batch(torch.tensor(numbers))
    inputs = {**model_inputs(expected), "ptr": expected.ptr}
    assert set(batch.inputs) == set(inputs)
    for name, value in inputs.items():
        found = batch.inputs[name]
        if isinstance(value, torch.Tensor):
            assert found.dtype == value.dtype, name
            assert torch.equal(found, value), name
        else:
            assert found == value, name
    assert torch.equal(batch.y, expected.y)
    assert batch.mask is None
    assert torch.equal(store.y[batch.at], batch.y)


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("numbers", [[2, 0, 3], [5], [1, 1]])
@pytest.mark.parametrize("masked", [False, True])
def test_padding_follows_the_real_part_and_is_marked(level, numbers, masked):
    graphs = some_graphs(level)
    rows = len(graphs) if level == "graph" else sum(graph.num_nodes for graph in graphs)
    mask = torch.arange(rows) % 2 == 0 if masked else None
    store, _ = make_store(graphs, level, mask)
    plain = store.batch(torch.tensor(numbers))
    shape = Shape(graphs=4, nodes=40, edges=100)
    index = torch.tensor(numbers + [len(graphs)] * (shape.graphs - len(numbers)))
    padded = store.gather(index, shape.nodes, shape.edges, padded=True)
    nodes, edges = plain.inputs["num_nodes"], plain.inputs["edge_index"].shape[1]
    assert padded.inputs["num_graphs"] == shape.graphs + 1
    assert padded.inputs["num_nodes"] == shape.nodes

    sizes = {"x": nodes, "eigvecs": nodes, "rwse": nodes, "batch": nodes, "edge_attr": edges}
    sizes |= {"eigvals": len(numbers), "eigmask": len(numbers)}
    for name, size in sizes.items():
        assert torch.equal(padded.inputs[name][:size], plain.inputs[name]), name
        if name != "batch":
            assert not padded.inputs[name][size:].any(), name
    assert torch.equal(padded.inputs["edge_index"][:, :edges], plain.inputs["edge_index"])
    starts = torch.searchsorted(padded.inputs["batch"], torch.arange(shape.graphs + 2))
    assert torch.equal(padded.inputs["ptr"], starts)
    assert torch.equal(padded.inputs["node_mask"], torch.arange(shape.nodes) < nodes)
    assert torch.equal(padded.inputs["edge_mask"], torch.arange(shape.edges) < edges)

    # Padding nodes belong to a graph of their own, and padding edges stay among them, sorted like all others.
    assert (padded.inputs["batch"][nodes:] == shape.graphs).all()
    assert (padded.inputs["edge_index"][:, edges:] >= nodes).all()
    assert (padded.inputs["batch"].diff() >= 0).all()
    destination = padded.inputs["edge_index"][1]
    assert (destination.diff() >= 0).all()

    real = plain.y.shape[0]
    assert torch.equal(padded.y[:real], plain.y)
    assert torch.equal(padded.mask[:real], torch.ones(real, dtype=torch.bool) if mask is None else plain.mask)
    assert not padded.mask[real:].any()


@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_number_after_the_last_stands_for_an_empty_graph_that_does_not_count(level):
    graphs = some_graphs(level)
    store, _ = make_store(graphs, level)
    batch = store.batch(torch.tensor([0, len(graphs)]))
    assert batch.inputs["num_graphs"] == 2
    assert batch.inputs["num_nodes"] == graphs[0].num_nodes
    task = Task(level, "regression", 1, "mae")
    alone = store.batch(torch.tensor([0]))
    prediction = torch.ones(batch.y.shape[0], 1)
    loss = task.loss(prediction, batch.y, batch.mask)
    assert torch.equal(loss, task.loss(prediction[: alone.y.shape[0]], alone.y, alone.mask))


def test_masks_travel_with_their_rows():
    graphs = some_graphs("node")
    mask = torch.rand(sum(graph.num_nodes for graph in graphs)) > 0.5
    store, _ = make_store(graphs, "node", mask)
    own = slice(graphs[0].num_nodes + graphs[1].num_nodes, None)
    assert torch.equal(store.batch(torch.tensor([2])).mask, mask[own][: graphs[2].num_nodes])


def test_floating_point_is_kept_in_the_default_dtype(float64):
    graphs = some_graphs("graph")
    for graph in graphs:
        graph.x, graph.y = graph.x.float(), graph.y.float()
    store, _ = make_store(graphs, "graph")
    batch = store.batch(torch.tensor([0]))
    assert batch.y.dtype == torch.float64
    assert {batch.inputs[name].dtype for name in ("x", "eigvals", "eigvecs", "rwse")} == {torch.float64}
    assert batch.inputs["edge_attr"].dtype == torch.int64
