"""What one process of many holds, does, and tells the others, in a step on one graph: counted, not measured."""

# Tensors [E, C] and [N, C] that a layer keeps for its backward pass in PyTorch's ops, its norms over nodes and edges,
# and the multiply-adds of its local part in units of C², for a node and for an edge.
LOCALS = {"gatedgcn": ((6, 12), 5, (4, 1)), "gine": ((1, 10), 3, (2, 0)), "gcn": ((0, 8), 3, (1, 0))}


def sent_bytes(halo: int, ranks: int, channels: int, frequencies: int, width: int, norms: int = 5) -> dict[str, int]:
    """What a process sends in a layer, forward and backward, and receives as well; ``width`` bytes are a number.

    Rows of the halo, and their gradients back; the state U = PᵀX and its gradient, 2 K C numbers; of every norm (two in
    GatedGCN, three in the layer) a row (n, μ, M) for each process, and two sums back. Sums are of float32 at least.
    """
    wide = max(width, 4)
    rows = norms * (ranks * (1 + 2 * channels) + 2 * channels) * wide
    return {"halo": 2 * halo * channels * width, "state": 2 * frequencies * channels * wide, "norms": rows}


def collectives(layers: int, norms: int = 5) -> int:
    """Of a step: halo, state and norms, forward and backward; gradients of weights in place of the last edges' norm."""
    return layers * (4 + 2 * norms)


def held_bytes(
    nodes: int, edges: int, channels: int, frequencies: int, layers: int, width: int, local: str = "gatedgcn"
) -> dict[str, int]:
    """Eigenvectors and edges; what all layers keep; and with recompute=1 their inputs and what one layer keeps."""
    (of_edges, of_nodes), row = LOCALS[local][0], channels * width
    one, inputs = row * (of_edges * edges + of_nodes * nodes), row * (nodes + edges)
    data = 4 * nodes * frequencies + 16 * edges
    return {"data": data, "all layers": layers * one, "with recompute=1": layers * inputs + one}


def multiply_adds(
    nodes: int, edges: int, channels: int, frequencies: int, layers: int, local: str = "gatedgcn"
) -> float:
    """Of a step: three times 6 C² of network and global part and those of the local part; 7 K C of the global one."""
    of_nodes, of_edges = LOCALS[local][2]
    dense = 3 * channels**2 * (nodes * (6 + of_nodes) + edges * of_edges)
    return float(layers * (dense + 7 * nodes * frequencies * channels))
