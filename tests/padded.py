"""Batches padded to a static shape, with as many graphs of padding as one likes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.padding import GRAPH_ROWS, NODE_ROWS


def pad_inputs(inputs: Mapping[str, Any], nodes: int, edges: int, graphs: int) -> dict[str, Any]:
    """Inputs of ``GSSC.forward`` padded to so many nodes, edges and graphs, with ``node_mask`` and ``edge_mask``.

    Padding nodes are spread over the padding graphs and padding edges, loops, over the padding nodes: both evenly and
    in ascending order, so that edges sorted by destination stay sorted.
    """
    device = inputs["edge_index"].device
    real_nodes, real_edges, real_graphs = inputs["num_nodes"], inputs["edge_index"].shape[1], inputs["num_graphs"]
    more_nodes, more_edges, more_graphs = nodes - real_nodes, edges - real_edges, graphs - real_graphs
    for name, real, more in (
        ("nodes", real_nodes, more_nodes),
        ("edges", real_edges, more_edges),
        ("graphs", real_graphs, more_graphs),
    ):
        if more < 0:
            fail(name, f"at least the {real} of the batch", real + more)
    if more_nodes and not more_graphs:
        fail("graphs", "a graph for the padding nodes", graphs)
    if more_edges and not more_nodes:
        fail("nodes", "a node for the padding edges", nodes)

    def spread(rows: int, over: int, first: int) -> Tensor:
        return first + torch.arange(rows, device=device) * over // max(rows, 1)

    batch = inputs.get("batch")
    if batch is None:
        batch = torch.zeros(real_nodes, dtype=torch.int64, device=device)
    loops = spread(more_edges, more_nodes, real_nodes).expand(2, -1)
    padded = {
        **inputs,
        "edge_index": torch.cat([inputs["edge_index"], loops], dim=1),
        "batch": torch.cat([batch, spread(more_nodes, more_graphs, real_graphs)]),
        "num_nodes": nodes,
        "num_graphs": graphs,
        "node_mask": torch.arange(nodes, device=device) < real_nodes,
        "edge_mask": torch.arange(edges, device=device) < real_edges,
    }
    counts = dict.fromkeys(NODE_ROWS, more_nodes) | dict.fromkeys(GRAPH_ROWS, more_graphs) | {"edge_attr": more_edges}
    for name, more in counts.items():
        rows = inputs.get(name)
        if rows is not None:
            padded[name] = torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])])
    return padded
