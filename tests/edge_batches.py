"""Edges and random inputs of the ops of message passing."""

import torch
from torch import Tensor

# Nodes and edges [source, target], in no order; nodes without edges, several edges between two nodes, loops.
EDGES = {
    "random": (9, [(3, 1), (0, 5), (5, 0), (1, 3), (8, 8), (3, 1), (2, 5), (5, 2), (7, 5), (0, 1), (4, 5), (8, 5)]),
    "star": (8, [(node, 2) for node in range(7)] + [(2, node) for node in range(7)]),
    "one edge": (3, [(2, 0)]),
    "no edges": (3, []),
    "no nodes": (0, []),
}


def make_edges(pairs: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()


def gine_inputs(nodes: int, pairs: list[tuple[int, int]], channels: int) -> dict[str, Tensor]:
    return {
        "x": torch.randn(nodes, channels),
        "edge_attr": torch.randn(len(pairs), channels),
        "edge_index": make_edges(pairs),
    }


def gated_inputs(nodes: int, pairs: list[tuple[int, int]], channels: int, masked: bool = False) -> dict[str, Tensor]:
    inputs = {name: torch.randn(nodes, channels) for name in ("target", "source", "neighbor")}
    inputs |= {
        "edge_attr": torch.randn(len(pairs), channels),
        "weight": torch.randn(channels, channels) / channels**0.5,
        "bias": torch.randn(channels),
        "scale": torch.rand(channels) + 0.5,
        "shift": torch.randn(channels),
        "running_mean": torch.randn(channels),
        "running_variance": torch.rand(channels) + 0.5,
        "edge_index": make_edges(pairs),
    }
    if masked:
        inputs["mask"] = torch.arange(len(pairs)) % 3 != 1
    return inputs
