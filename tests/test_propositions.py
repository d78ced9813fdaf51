"""The paper's propositions as exact tests: weights set by hand, counts by brute force, float64."""

import itertools

import networkx as nx
import numpy as np
import pytest
import torch
from graphs import complete, cycle, from_networkx, path, random_graph, rook_4x4, shrikhande, two_triangles
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch

from gssc import GSSC, DeepSetPhi, DiffusionPhi, ElementwisePhi, GSSConv, LaplacianSpectrum, model_inputs
from gssc.testing import assert_close

pytestmark = pytest.mark.usefixtures("float64")


def spectrum(data, **settings):
    return LaplacianSpectrum(**{"k": data.num_nodes, "operator": "adjacency", **settings})(data)


def powers(eigvals, count):
    """Φ = [1, λ, λ², …], [G, K, count]."""
    return torch.stack([eigvals**p for p in range(count)], dim=-1)


def set_weights(conv, **weights):
    """Every weight zero but those given; a list names for each output the input that it picks (None: nothing)."""
    for parameter in conv.parameters():
        torch.nn.init.zeros_(parameter)
    for name, picks in weights.items():
        for row, column in enumerate(picks):
            if column is not None:
                getattr(conv, name).weight.data[row, column] = 1.0


# Proposition 3.1


@pytest.mark.parametrize("n", [2, 7, 20])
def test_long_range_influence_does_not_decay_with_distance(n):
    data = spectrum(path(n))
    coefficient = 0.5
    gain = sum(coefficient * data.eigvals**power for power in range(1, n + 1))
    phi = torch.stack([torch.ones_like(gain), gain], dim=-1)
    conv = GSSConv(1, 2, self_term=False)
    set_weights(conv, lin_q=[1], lin_k=[0], lin_o=[0])
    jacobian = torch.autograd.functional.jacobian(lambda x: conv(x, phi, data.eigvecs), torch.ones(n, 1))
    influence = jacobian.view(n, n).abs()
    away = ~torch.eye(n, dtype=torch.bool)
    assert influence[away].min() >= coefficient - 1e-8
    assert influence[0, n - 1] >= coefficient - 1e-8


# Proposition 3.2


def graph_embeddings(model, *graphs):
    with torch.no_grad():
        return [model(**model_inputs(graph)) for graph in graphs]


def separation(model, transform, one, other):
    first, second = graph_embeddings(model, transform(one), transform(other))
    return float((first - second).abs().max())


@pytest.mark.parametrize("operator", ["adjacency", "sym"])
def test_two_triangles_and_a_hexagon_are_separated_by_gssc_only(operator):
    transform = LaplacianSpectrum(k=6, operator=operator)
    pair = two_triangles(), cycle(6)
    assert separation(GSSC(8, 32, 2).eval(), transform, *pair) > 1e-4
    assert separation(GSSC(8, 32, 2, local="none").eval(), transform, *pair) > 1e-4
    for local in ("gin", "gatedgcn"):
        assert separation(GSSC(8, 32, 4, local=local, glob="none").eval(), transform, *pair) < 1e-10


def test_from_constant_features_the_self_term_separates_them():
    transform = LaplacianSpectrum(k=6, operator="adjacency")
    spectral_convolution = GSSC(8, 32, 3, glob="gsc", local="none").eval()
    assert separation(spectral_convolution, transform, two_triangles(), cycle(6)) < 1e-10
    full_phi = GSSC(8, 32, 3, glob="gssc", phi="elementwise", self_term=False, local="none").eval()
    assert separation(full_phi, transform, two_triangles(), cycle(6)) < 1e-10


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("k", [16, 9, 5])
@pytest.mark.parametrize("operator", ["adjacency", "sym", "combinatorial"])
def test_rook_and_shrikhande_stay_unseparated(operator, k, selective):
    transform = LaplacianSpectrum(k=k, operator=operator)
    model = GSSC(8, 32, 3, selective=selective).eval()
    assert separation(model, transform, rook_4x4(), shrikhande()) < 1e-9


def test_a_raw_cut_separates_them_falsely():
    transform = LaplacianSpectrum(k=5, operator="adjacency", truncation="raw")
    assert separation(GSSC(8, 32, 3).eval(), transform, rook_4x4(), shrikhande()) > 1e-6


# Proposition 3.3


def count_paths(graph, node, length):
    """Simple paths with ``length`` edges that start at ``node``, by enumeration."""
    found, stack = 0, [(node,)]
    while stack:
        walk = stack.pop()
        if len(walk) == length + 1:
            found += 1
        else:
            stack += [(*walk, other) for other in graph[walk[-1]] if other not in walk]
    return found


def count_cycles(graph, node, length):
    """Cycles with ``length`` nodes through ``node``, by enumeration of paths that close; each is met twice."""
    found, stack = 0, [(node,)]
    while stack:
        walk = stack.pop()
        if len(walk) == length:
            found += graph.has_edge(walk[-1], node)
        else:
            stack += [(*walk, other) for other in graph[walk[-1]] if other not in walk]
    assert found % 2 == 0
    return found // 2


def brute_force(data, count, length):
    graph = nx.Graph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.T.tolist())
    return torch.tensor([float(count(graph, node, length)) for node in range(data.num_nodes)])


def walk_features(data):
    """Layer 1: from x = 1, global λ, λ², λ³, λ⁴ give a1 … a4; self λ², λ³, λ⁴ give d, t, q."""
    conv = GSSConv(7, 5)
    set_weights(
        conv,
        lin_q=[1, 2, 3, 4, None, None, None],
        lin_k=[0, 0, 0, 0, None, None, None],
        lin_o=[0, 1, 2, 3, None, None, None],
        lin_sq=[None, None, None, None, 2, 3, 4],
        lin_sk=[None, None, None, None, 0, 0, 0],
        lin_s=[None, None, None, None, 4, 5, 6],
    )
    return conv(torch.ones(data.num_nodes, 7), powers(data.eigvals, 5), data.eigvecs).unbind(1)


def neighbour_sums(data, *features):
    """Layer 2: global gain λ, which is a product with A."""
    conv = GSSConv(len(features), 5)
    everywhere = range(len(features))
    set_weights(conv, lin_q=[1 for _ in everywhere], lin_k=[0 for _ in everywhere], lin_o=list(everywhere))
    return conv(torch.stack(features, dim=1), powers(data.eigvals, 5), data.eigvecs).unbind(1)


simple_graphs = st.builds(random_graph, st.integers(1, 12), st.floats(0.1, 0.8), st.integers(0, 10**6))


@given(simple_graphs)
def test_counts_of_paths_and_cycles_are_exact(data):
    data = spectrum(data)
    a1, a2, a3, a4, d, t, q = walk_features(data)
    ad, af = neighbour_sums(data, d, t + d * d)
    counts = {
        ("paths", 2): a2 - d,
        ("paths", 3): a3 + a1 - ad - d * a1 - t,
        ("paths", 4): a4 - a3 + 3 * a2 - q + 3 * t - 2 * d + 2 * d * d - d * a2 - d * t - af,
        ("cycles", 3): t / 2,
        ("cycles", 4): (q + d - d * d - ad) / 2,
    }
    for (kind, length), count in counts.items():
        count_all = count_paths if kind == "paths" else count_cycles
        error = (count - brute_force(data, count_all, length)).abs().max()
        assert error < 1e-8, f"{kind} of length {length}: off by {error}"


@given(simple_graphs)
def test_selection_computes_the_terms_of_the_proof(data):
    data = spectrum(data)
    lam = data.eigvals
    phi = torch.stack([torch.ones_like(lam), lam, torch.ones_like(lam), lam**2], dim=-1)
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1.0
    degree, ones = adjacency.sum(1), torch.ones(data.num_nodes)
    conv = GSSConv(4, selective=True, normalize=False)
    set_weights(
        conv,
        lin_dq=[1, 0, 1, 0],
        lin_dk=[0, 0, 0, 0],
        lin_dv=[0, 1, 2, 3],
        lin_sq=[0, None, 2, None],
        lin_sk=[1, None, 3, None],
        lin_s=[1, None, 1, None],
    )
    out = conv(torch.stack([degree, ones, ones, ones], dim=1), phi, data.eigvecs)
    assert_close(out[:, 0], adjacency.square() @ degree, tolerance=1e-8)
    assert_close(out[:, 2], (adjacency * (adjacency @ adjacency)).sum(1), tolerance=1e-8)
    # In place of Ad and of t, they give the 4-cycles and the 4-paths.
    _, a2, a3, a4, d, t, q = walk_features(data)
    _, af = neighbour_sums(data, d, t + d * d)
    cycles = (q + d - d * d - out[:, 0]) / 2
    assert_close(cycles, brute_force(data, count_cycles, 4), tolerance=1e-8)
    paths = a4 - a3 + 3 * a2 - q + 3 * out[:, 2] - 2 * d + 2 * d * d - d * a2 - d * t - af
    assert_close(paths, brute_force(data, count_paths, 4), tolerance=1e-8)


# Remark (4), stability, and size generalisation


@pytest.mark.parametrize(
    "phi", [DeepSetPhi(6), DiffusionPhi((0.5, 1.0, 2.0, 3.0, 4.0, 5.0))], ids=["deepset", "diffusion"]
)
def test_output_moves_in_proportion_to_a_perturbation_of_the_weights(phi):
    phi = phi.double()
    data = from_networkx(nx.barbell_graph(5, 0))
    conv, x = GSSConv(6), torch.randn(10, 6)
    noise = torch.rand(10, 10)
    noise = (noise + noise.T)[data.edge_index[0], data.edge_index[1]]

    def output(epsilon):
        data.edge_weight = 1.0 + epsilon * noise
        # Two eigenvalues, 0 and the bottleneck's, lie far below the rest: a gap at the cut.
        out = LaplacianSpectrum(k=2)(data)
        assert out.eigmask.all()
        return conv(x, phi(out.eigvals, out.eigmask), out.eigvecs).detach()

    start = output(0.0)
    slopes = [float((output(epsilon) - start).norm()) / epsilon for epsilon in (1e-2, 1e-3, 1e-4, 1e-5)]
    assert max(slopes) < 1.5 * min(slopes)
    assert max(slopes) < 100


def test_trained_on_small_graphs_it_holds_on_larger_ones():
    """Heat diffusion exp(-L) x, learned on graphs of up to 15 nodes, predicted on graphs of 30."""
    transform = LaplacianSpectrum(k=30)

    def batch_of(sizes, seed):
        graphs = []
        for i, n in enumerate(sizes):
            graph = transform(random_graph(n, 4 / n, seed + i))
            graph.x = torch.randn(n, 4)
            heat = graph.eigvecs * torch.exp(-graph.eigvals) @ graph.eigvecs.T
            graph.y = heat @ graph.x
            graphs.append(graph)
        return Batch.from_data_list(graphs)

    phi, conv = ElementwisePhi(8), GSSConv(4, 8, self_term=False)
    train, test = batch_of([5 + i % 11 for i in range(64)], 0), batch_of([30] * 16, 10**4)
    optimiser = torch.optim.Adam([*phi.parameters(), *conv.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 300)

    def error(data):
        out = conv(data.x, phi(data.eigvals, data.eigmask), data.eigvecs, data.batch)
        return (out - data.y).norm() / data.y.norm()

    for _ in range(300):
        optimiser.zero_grad()
        error(train).backward()
        optimiser.step()
        schedule.step()
    assert error(train) < 0.03
    assert error(test) < 0.05


def test_complete_graph_has_no_cut_in_the_wrong_place():
    """All eigenvectors of K_n but the constant one form a single eigenspace: with k < n only the constant is kept."""
    out = LaplacianSpectrum(k=4)(complete(9))
    assert out.eigmask.tolist() == [[True, False, False, False]]
    np.testing.assert_allclose(out.eigvecs[:, 0].abs(), 1 / 3)


def test_all_pairs_of_small_graphs_with_equal_degrees_that_gssc_tells_apart():
    """Beyond the one pair of the paper: 2-regular graphs on 8 nodes, which 1-WL cannot tell apart."""
    transform = LaplacianSpectrum(k=8)
    union = lambda *sizes: from_networkx(nx.disjoint_union_all([nx.cycle_graph(n) for n in sizes]))  # noqa: E731
    model = GSSC(8, 32, 2).eval()
    for one, other in itertools.combinations([cycle(8), union(4, 4), union(3, 5)], 2):
        assert separation(model, transform, one, other) > 1e-5
