"""Batches padded to a static shape, so that one compiled program or CUDA graph serves many batches.

Padding stands at the end: graphs of its own, which hold the padding nodes, and edges among those. No message, pool or
convolution crosses from one graph to another, so masked statistics are all it takes to make padding invisible.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gssc.checks import check_shape, fail

NODE_ROWS = ("x", "eigvecs", "rwse")
GRAPH_ROWS = ("eigvals", "eigmask")


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


def blank(rows: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Rows of a padded batch with zeros for padding, whatever stood there (wrong shapes are left to later checks)."""
    if rows is None or mask is None or mask.shape[:1] != rows.shape[:1]:
        return rows
    return torch.where(mask if rows.dim() == 1 else mask.unsqueeze(1), rows, 0)


def check_masks(node_mask: Tensor | None, edge_mask: Tensor | None, nodes: int, edges: int) -> None:
    """Fail unless the masks are boolean and fit."""
    for name, mask, rows in (("node_mask", node_mask, nodes), ("edge_mask", edge_mask, edges)):
        if mask is not None:
            check_shape(name, mask, rows)
            if mask.dtype != torch.bool:
                fail(name, "a boolean tensor (True = real)", mask.dtype)
    if node_mask is None and edge_mask is not None:
        fail("node_mask", "given where edge_mask is: padding edges join padding nodes", "None")


def check_padding(node_mask: Tensor, edge_mask: Tensor | None, edge_index: Tensor, batch: Tensor | None) -> None:
    """Fail where an edge or a graph holds real and padding nodes. Looks at values: for the CPU."""
    if batch is None:
        fail("batch", "the graph number of every node, where node_mask is given", "None")
    if not bool((node_mask[edge_index] == (True if edge_mask is None else edge_mask)).all()):
        fail("edge_mask", "real edges among real nodes and padding edges among padding nodes", "others")
    if bool((node_mask[1:] != node_mask[:-1])[batch[1:] == batch[:-1]].any()):
        fail("node_mask", "real nodes and padding nodes in different graphs", "a graph with both")
