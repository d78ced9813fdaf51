"""Several processes are one: outputs, gradients and five steps of training, in float64 to 1e-9."""

from importlib.util import find_spec

import torch
from shard_ranks import CASES, PLANS, RANKS, make_model, start, train, work
from torch_geometric.data import Data

from gssc import LaplacianSpectrum, RandomWalkSE
from gssc.shards import assign_nodes
from gssc.shards.plan import sent_bytes
from gssc.testing import assert_close


def make_graph(part: str, nodes: int = 40) -> dict:
    """A random directed graph with parallel edges, loops and a node without edges, and who holds which node."""
    generator = torch.Generator().manual_seed(nodes)
    edges = torch.randint(0, nodes - 1, (2, 3 * nodes), generator=generator)
    edges = torch.cat([edges, edges.flip(0)[:, ::2], edges[:, :3], torch.tensor([[1, 5], [1, 5]])], dim=1)
    x = torch.randn(nodes, 3, generator=generator)
    graph = LaplacianSpectrum(k=5)(Data(x=x, edge_index=edges))
    graph = RandomWalkSE(3)(graph)
    parts = {
        "random": torch.randint(0, RANKS, (nodes,), generator=generator),
        "blocks": torch.arange(nodes) * RANKS // nodes,
        "metis": assign_nodes(edges, nodes, RANKS, "metis" if find_spec("pymetis") else "propagation")[0],
        "empty": torch.where(torch.arange(nodes) % 3 == 0, 2, 0),  # two processes have nothing; of two, one
    }
    edge_attr = torch.randn(edges.shape[1], 2, generator=generator)
    found = {name: graph[name] for name in ("x", "edge_index", "eigvals", "eigvecs", "eigmask", "rwse")}
    weights = torch.randn(nodes, 2, generator=generator)
    return found | {"edge_attr": edge_attr, "part": parts[part], "weights": weights}


def test_several_processes_are_one(float64, tmp_path):
    # One test: its processes take seconds to start.
    graphs = {part: make_graph(part) for part in PLANS}
    torch.save(graphs, tmp_path / "cases.pt")
    start(work, RANKS, str(tmp_path))
    results = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(RANKS)]
    for name, graph in graphs.items():
        inputs = {name: graph[name] for name in ("x", "edge_index", "eigvals", "eigvecs", "eigmask")}
        for case in {case: None for cases in PLANS[name].values() for case in cases}:
            more = {"edge_attr": graph["edge_attr"]} if CASES[case].get("edge_features", 2) is not None else {}
            more |= {"rwse": graph["rwse"]} if "rwse" in CASES[case] else {}
            expected = train(make_model(case), inputs | more, graph["weights"])
            for ranks in (ranks for ranks, cases in PLANS[name].items() if case in cases):
                check(f"{ranks} {name} {case}", [result[ranks, name, case] for result in results[:ranks]], expected)
    # Every process of four has nodes in the halo from each other one, and a second run has the same bits.
    part, edges = graphs["random"]["part"], graphs["random"]["edge_index"]
    assert torch.unique(part[edges], dim=1).shape[1] == RANKS**2
    assert all(result["again"] for result in results)
    # And what they send is what the formulas of `gssc plan` say: rows of x and their gradients, states, rows of norms.
    for sent in (result["sent"] for result in results[:2]):
        expected = sent_bytes(1, 2, channels=8, frequencies=5, width=8)
        assert 2 * sent["halo"] == 3 * sent["rows"] * expected["halo"]  # of both directions the mean
        assert sent["state"] == 3 * expected["state"]
        # What the last edges become is not needed: their norm has no gradient.
        assert sent["norms"] == 3 * expected["norms"] - 2 * 8 * 8


def check(case: str, parts: list[dict], expected: dict) -> None:
    order = torch.argsort(torch.cat([part["nodes"] for part in parts]))
    for name, value in expected.items():
        if name in ("output", "evaluated") and value.shape[0] > 1:
            assert_close(torch.cat([part[name] for part in parts])[order], value, f"{case}, {name}", tolerance=1e-9)
            continue
        for part in parts:
            assert_close(part[name].double(), value.double(), f"{case}, {name}", tolerance=1e-9)
