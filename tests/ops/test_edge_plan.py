import pytest
import torch
from edge_batches import EDGES, make_edges
from streams import no_waiting

from gssc.ops import edge_plan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("name", EDGES)
def test_every_edge_once_in_both_orders(name):
    nodes, pairs = EDGES[name]
    edge_index = make_edges(pairs).to(DEVICE)
    plan = edge_plan(edge_index, nodes)
    for order, others, ptr, row in (
        (plan.by_target, plan.sources, plan.target_ptr, 1),
        (plan.by_source, plan.targets, plan.source_ptr, 0),
    ):
        assert sorted(order.tolist()) == list(range(len(pairs)))
        assert others.tolist() == edge_index[1 - row][order.long()].tolist()
        assert len(ptr) == nodes + 1
        for node in range(nodes):
            edges = order[ptr[node] : ptr[node + 1]].tolist()
            assert edges == [edge for edge, pair in enumerate(pairs) if pair[row] == node]


def test_plans_are_contiguous_and_narrow():
    nodes, pairs = EDGES["random"]
    for part in edge_plan(make_edges(pairs), nodes):
        assert part.dtype == torch.int32
        assert part.is_contiguous()
        assert part.data_ptr() % 16 == 0


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU")
def test_no_step_waits_for_the_device():
    edge_index = torch.randint(0, 50, (2, 300), device="cuda")
    edge_plan(edge_index, 50)
    with no_waiting():
        plan = edge_plan(edge_index, 50)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = edge_plan(edge_index, 50)
    graph.replay()
    for found, expected in zip(captured, plan, strict=True):
        assert torch.equal(found, expected)


def test_bad_input():
    with pytest.raises(ValueError, match=r"edge_index: expected shape \[2, \*\]"):
        edge_plan(torch.zeros(3, 2, dtype=torch.long), 3)
