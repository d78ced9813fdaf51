"""Random inputs of the ops, for packed batches of given sizes."""

import torch
from torch import Tensor

# Odd sizes, graphs without nodes, one graph, equal graphs (the uniform path), an empty batch.
SIZES = {
    "ragged": [7, 0, 1, 63, 5, 12, 0],
    "one": [60],
    "equal": [4, 4, 4],
    "single nodes": [1, 1],
    "no nodes": [0, 0],
    "empty batch": [],
}


def make_ptr(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0)


def make_vectors(sizes: list[int], frequencies: int) -> Tensor:
    """Orthonormal columns per graph, zero columns where a graph has fewer nodes than frequencies."""
    blocks = []
    for n in sizes:
        block = torch.zeros(n, frequencies)
        if n:
            valid = min(n, frequencies)
            block[:, :valid] = torch.linalg.qr(torch.randn(n, n)).Q[:, :valid]
        blocks.append(block)
    return torch.cat(blocks) if blocks else torch.zeros(0, frequencies)


def conv_inputs(sizes: list[int], frequencies: int, channels: int, shared: bool = False) -> dict[str, Tensor]:
    nodes, graphs, gain_channels = sum(sizes), len(sizes), 1 if shared else channels
    return {
        "x_o": torch.randn(nodes, channels),
        "x_s": torch.randn(nodes, channels),
        "vectors": torch.randn(nodes, frequencies),
        "gains": torch.randn(graphs, frequencies, gain_channels),
        "self_gains": torch.randn(graphs, frequencies, gain_channels),
        "ptr": make_ptr(sizes),
    }


def selective_inputs(sizes: list[int], frequencies: int, channels: int) -> dict[str, Tensor]:
    nodes, graphs = sum(sizes), len(sizes)
    return {
        "x": torch.randn(nodes, channels),
        "x_o": torch.randn(nodes, channels),
        "x_s": torch.randn(nodes, channels),
        "vectors": make_vectors(sizes, frequencies),
        "phi": torch.randn(graphs, frequencies, channels),
        "pair_gains": torch.randn(graphs, frequencies, channels),
        **{name: torch.randn(channels, channels) for name in ("dv", "q", "k", "sq", "sk")},
        "ptr": make_ptr(sizes),
    }
