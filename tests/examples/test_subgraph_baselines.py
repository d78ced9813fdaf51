"""Subgraphs are networkx's ego graphs; ID-GIN and NGNN are their papers' formulas, and tell what a GIN cannot."""

import runpy
from pathlib import Path

import networkx as nx
import pytest
import torch
from graphs import cycle, edgeless, path, random_graph, star, two_triangles
from small_run import write_cycles
from torch_geometric.data import Batch
from torch_geometric.utils import to_networkx

from gssc.datasets.cycles import cycle_counts
from gssc.testing import assert_close, assert_permutation_equivariant

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "subgraph_baselines.py"))
rooted_subgraphs, Counter, IDGIN, NGNN = (EXAMPLE[key] for key in ("rooted_subgraphs", "Counter", "IDGIN", "NGNN"))
C = 5
pytestmark = pytest.mark.usefixtures("float64")


def graphs():
    return [random_graph(9), edgeless(1), path(4), star(5), random_graph(14, 0.2, seed=3)]


def adjacency_of(data):
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    return adjacency


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_subgraphs_are_ego_graphs(hops):
    batch = Batch.from_data_list(graphs())
    found = rooted_subgraphs(batch.edge_index, batch.num_nodes, hops)
    whole = to_networkx(batch, to_undirected=True)
    for root in range(batch.num_nodes):
        expected = nx.ego_graph(whole, root, hops)
        rows = (found.roots == root).nonzero().squeeze(1)
        distances = dict(zip(found.nodes[rows].tolist(), found.distance[rows].tolist(), strict=True))
        assert distances == nx.single_source_shortest_path_length(whole, root, hops)
        inside = torch.isin(found.edge_index[0], rows)
        ends = found.nodes[found.edge_index[:, inside]].T.tolist()
        assert sorted(map(tuple, ends)) == sorted([*expected.edges, *(edge[::-1] for edge in expected.edges)])
        assert bool((found.roots[found.edge_index[1, inside]] == root).all())


def trained(kind, hops=2, layers=3):
    """A network whose norms have seen something."""
    torch.manual_seed(1)
    model = Counter(kind, C, layers, hops)
    batch = Batch.from_data_list(graphs())
    for _ in range(3):
        model(batch.edge_index, batch.batch)
    return model.eval()


def id_gin(network, x, adjacency, root):
    h = x
    for layer in network.layers:
        messages = torch.stack([(layer.lin_root if s == root else layer.lin_other)(row) for s, row in enumerate(h)])
        h = layer.mlp((1 + layer.eps) * h + adjacency.T @ messages).relu()
    return h[root]


def ngnn(network, x, adjacency, distances):
    h = x + network.label.weight[distances]
    for eps, mlp in zip(network.eps, network.mlps, strict=True):
        h = mlp((1 + eps) * h + adjacency.T @ h).relu()
    return network.pooled(h.sum(0))


@pytest.mark.parametrize("kind", [IDGIN, NGNN])
def test_it_is_the_formula_on_every_subgraph(kind):
    model, data = trained(kind), graphs()[0]
    x, whole = torch.randn(data.num_nodes, C), to_networkx(graphs()[0], to_undirected=True)
    rows = []
    for root in range(data.num_nodes):
        distances = nx.single_source_shortest_path_length(whole, root, 2)
        nodes = sorted(distances)
        inside = adjacency_of(data)[nodes][:, nodes]
        known = nodes.index(root) if kind is IDGIN else torch.tensor([distances[node] for node in nodes])
        rows.append((id_gin if kind is IDGIN else ngnn)(model.network, x[nodes], inside, known))
    assert_close(model.network(x, rooted_subgraphs(data.edge_index, data.num_nodes, 2)), torch.stack(rows))


@pytest.mark.parametrize("kind", [IDGIN, NGNN])
def test_nodes_may_be_permuted_and_graphs_stand_alone(kind):
    model, parts = trained(kind), graphs()

    def function(data):
        batch = data.batch if data.batch is not None else torch.zeros(data.num_nodes, dtype=torch.long)
        return model(data.edge_index, batch)

    for data in parts:
        assert_permutation_equivariant(function, data)
    assert_close(function(Batch.from_data_list(parts)), torch.cat([function(data) for data in parts]))


@pytest.mark.parametrize("length", [3, 4, 5, 6])
def test_id_gin_counts_walks_that_return_to_the_root_and_so_cycles(length):
    """First only the root speaks, then all others: walks of this length that come back for the first time."""
    network = IDGIN(1, length, length // 2).eval()
    for number, layer in enumerate(network.layers):
        layer.lin_root.weight.data.fill_(float(number == 0))
        layer.lin_other.weight.data.fill_(float(number > 0))
        layer.eps.data.fill_(-1.0)
        first, norm, _, last = layer.mlp
        norm.eps = 0.0
        for linear in (first, last):
            linear.weight.data.fill_(1.0)
            linear.bias.data.fill_(0.0)
    data = random_graph(12, 0.4)
    found = network(torch.ones(12, 1), rooted_subgraphs(data.edge_index, 12, length // 2)).squeeze(1)
    adjacency = adjacency_of(data)
    for root in range(12):
        without = adjacency.clone()
        without[root], without[:, root] = 0.0, 0.0
        walks = adjacency[root] @ torch.linalg.matrix_power(without, length - 2) @ adjacency[:, root]
        assert found[root] == walks
    cycles = cycle_counts(adjacency[None])[0]
    if length == 3:
        assert torch.equal(found, 2 * cycles[:, 0])
    if length == 4:  # and walks root, a, b, a, root
        assert torch.equal(found - adjacency @ (adjacency.sum(0) - 1), 2 * cycles[:, 1])


@pytest.mark.parametrize("kind", [IDGIN, NGNN])
def test_two_triangles_are_no_hexagon(kind):
    outputs = []
    for data in (two_triangles(), cycle(6)):
        assert bool((adjacency_of(data).sum(0) == 2).all())  # a GIN sees the same everywhere
        outputs.append(trained(kind, hops=1)(data.edge_index, torch.zeros(6, dtype=torch.long)))
    assert_close(outputs[0], outputs[0][:1].expand(6, 1))
    assert float((outputs[0] - outputs[1]).detach().abs().min()) > 1e-7


def test_main_trains_as_the_recipe_says(tmp_path, capsys):
    write_cycles(tmp_path)
    errors = {}
    for epochs in ("1", "80"):
        words = ["--recipe", "cycles-3", "--data-root", str(tmp_path), "--channels", "16", "--layers", "3"]
        errors[epochs] = EXAMPLE["main"]([*words, "--epochs", epochs, "--device", "cpu"])
    assert errors["80"] < 0.7 * errors["1"]
    said = capsys.readouterr().out
    assert "1 hops" in said
    assert f"test {errors['80']:.5f}" in said
