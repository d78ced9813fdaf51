"""What one process of many holds, and tells the others, in a step on one graph: counted, not measured."""


def sent_bytes(halo: int, ranks: int, channels: int, frequencies: int, width: int, norms: int = 5) -> dict[str, int]:
    """What a process sends in a layer, forward and backward, and receives as well; ``width`` bytes are a number.

    Rows of the halo, and their gradients back; the state U = PᵀX and its gradient, 2 K C numbers; of every norm (two in
    GatedGCN, three in the layer) a row (n, μ, M) for each process, and two sums back. Sums are of float32 at least.
    """
    wide = max(width, 4)
    rows = norms * (ranks * (1 + 2 * channels) + 2 * channels) * wide
    return {"halo": 2 * halo * channels * width, "state": 2 * frequencies * channels * wide, "norms": rows}


def held_bytes(nodes: int, edges: int, channels: int, frequencies: int, layers: int, width: int) -> dict[str, int]:
    """Eigenvectors and edges, inputs of all layers (recompute=1), and the ten tensors [E, C] of one GatedGCN."""
    row = channels * width
    inputs = layers * row * (nodes + edges)
    return {"data": 4 * nodes * frequencies + 16 * edges, "inputs of layers": inputs, "one layer": 10 * row * edges}
