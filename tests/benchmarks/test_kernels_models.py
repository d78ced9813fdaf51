import pytest
import torch
from rich.console import Console

from benchmarks import kernels, kernels_models
from benchmarks.harness import Timing
from benchmarks.kernels_conv import Result
from benchmarks.kernels_models import (
    Graph,
    errors,
    estimated_gb,
    half_error,
    make_model,
    slopes,
    sparse,
    steps,
    training,
)
from gssc import GSSConv

SMALL = Graph("small", 30, 90, k=5)


def test_edges_are_sorted_by_target_and_inside():
    index = SMALL.inputs()["edge_index"]
    assert index.shape == (2, 90)
    assert bool((index[1].diff() >= 0).all())
    assert 0 <= int(index.min()) <= int(index.max()) < 30


@pytest.mark.parametrize("recompute", [0, 2])
def test_right_models_pass_the_gates(recompute):
    output, gradients = errors(SMALL, channels=8, recompute=recompute)
    assert 0.0 < output <= kernels_models.OUTPUT_LIMIT
    assert 0.0 < gradients <= kernels_models.LIMIT
    assert 1e-4 < half_error(SMALL, channels=8, recompute=recompute) <= kernels_models.HALF_LIMIT


def test_wrong_models_do_not(monkeypatch):
    class Wrong(GSSConv):
        def forward(self, x, *rest, **named):
            return super().forward(1.001 * x if x.dtype == torch.float32 else x, *rest, **named)

    monkeypatch.setattr("gssc.model.GSSConv", Wrong)
    output, _ = errors(SMALL, channels=8)
    assert output > kernels_models.OUTPUT_LIMIT
    with pytest.raises(SystemExit, match="the model is wrong, and is not timed"):
        kernels.gates(Console(quiet=True), [SMALL])


@pytest.mark.parametrize(("precision", "recompute"), [("float32", 0), ("bf16", 2)])
def test_steps_give_finite_numbers(precision, recompute):
    graph = Graph("small", 30, 90, k=5, precision=precision, recompute=recompute)
    found = {name: step() for name, step in steps(graph, "gssc")}
    assert all(torch.isfinite(value).all() for value in found["training"].values())
    assert found["inference"].shape == (1, 1)


def test_the_model_is_of_the_declared_size():
    parameters = sum(parameter.numel() for parameter in make_model().parameters())
    assert 450_000 < parameters < 550_000
    assert "layers.3.local.lin_edge.weight" in training(make_model(channels=8), SMALL.inputs())


def test_slopes_of_powers():
    sizes = [10.0, 100.0, 1000.0]
    assert slopes(sizes, [n**1.2 for n in sizes]) == pytest.approx((1.2, 1.2))
    fitted, steepest = slopes(sizes, [1.0, 1.0, 10.0])
    assert fitted == pytest.approx(0.5)
    assert steepest == pytest.approx(1.0)


def test_growth_is_a_row_for_every_variant_of_one_degree():
    graphs = [sparse(n, 10, "bf16", 2) for n in (1000, 10_000, 100_000)]
    graphs.append(Graph("dense", 1000, 500_000))

    def result(graph, variant, milliseconds):
        return Result(graph.name, variant, Timing(0.0, milliseconds, 0.0, 1.0, "launched"), None, None)

    results = [result(graph, "training", graph.nodes**1.1) for graph in graphs]
    results += [result(graph, "inference", graph.nodes) for graph in graphs[:2]]
    results.append(Result(graphs[2].name, "inference", None, None, None, "out of memory"))
    (row,) = kernels.growth_rows(graphs, results)
    assert row["workload"] == "growth, degree 10, 1,000 to 100,000 nodes"
    assert row["ratio"] == "1.100"
    assert "steeper than linear" in row["note"]


def test_what_the_command_line_asks_for():
    def chosen(*words):
        return kernels.chosen_graphs(kernels.parse(["--models", *words]))

    (graph,) = chosen("--nodes", "70", "--degree", "4", "--precision", "bf16", "--recompute", "1")
    assert (graph.nodes, graph.edges, graph.setting) == (70, 280, ", bf16, recompute=1")
    assert [graph.nodes for graph in chosen("--nodes", "1000", "60000")] == [1000, 60000]
    assert [graph.nodes for graph in chosen("--growth")] == list(kernels_models.GROWTH)
    with pytest.raises(SystemExit, match="--nodes 70 needs --degree"):
        chosen("--nodes", "70")


def test_ten_million_nodes_fit_by_the_count():
    """Measured on an H200 in float32: 6.9 GB for the first, 38.6 GB for the second."""
    assert estimated_gb(kernels_models.DENSE[-1]) == pytest.approx(6.9, rel=0.1)
    assert estimated_gb(kernels_models.SPARSE[-1]) == pytest.approx(38.6, rel=0.1)
    large = [estimated_gb(sparse(10_000_000, 10, "bf16", recompute)) for recompute in (0, 1, 2)]
    assert large[0] > 150.0
    assert large[2] < large[1] < 130.0
