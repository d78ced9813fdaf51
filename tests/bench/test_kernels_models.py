import pytest
import torch

from gssc.bench import kernels_models
from gssc.bench.kernels_models import Graph, error, make_model, steps, training

SMALL = Graph("small", 30, 90, k=5)


def test_edges_are_sorted_by_target_and_inside():
    index = SMALL.inputs()["edge_index"]
    assert index.shape == (2, 90)
    assert bool((index[1].diff() >= 0).all())
    assert 0 <= int(index.min()) <= int(index.max()) < 30


def test_the_gate_is_far_from_rounding():
    assert error(SMALL, channels=8) <= kernels_models.LIMIT


@pytest.mark.parametrize("half", [False, True])
def test_steps_give_finite_numbers(half):
    graph = Graph("small", 30, 90, k=5, half=half)
    found = {name: step() for name, step in steps(graph, "gssc")}
    assert all(torch.isfinite(value).all() for value in found["training"].values())
    assert found["inference"].shape == (1, 1)


def test_the_model_is_of_the_declared_size():
    parameters = sum(parameter.numel() for parameter in make_model().parameters())
    assert 450_000 < parameters < 550_000
    assert "layers.3.local.lin_edge.weight" in training(make_model(channels=8), SMALL.inputs())
