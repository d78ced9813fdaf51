"""Node features for graphs without any: the local degree profile."""

import torch
from torch import Tensor

from gssc.spectra.packed import PackedGraphs


def degree_profile(graphs: PackedGraphs) -> Tensor:
    """Degree of every node, and minimum, maximum, mean and standard deviation of its neighbours' degrees: [N, 5].

    A neighbour is where an edge leads to; the degree counts the edges that leave. Nodes without neighbours get zeros.
    PyG's ``LocalDegreeProfile``, for all graphs at once.
    """
    nodes = graphs.num_nodes
    starts = graphs.ptr[:-1].repeat_interleave(graphs.edge_ptr.diff())
    source, destination = graphs.edge_index + starts
    dtype = torch.get_default_dtype()
    degree = torch.bincount(source, minlength=nodes).to(dtype)
    around = degree[destination]
    count = degree.clamp(min=1.0)
    zeros = torch.zeros(nodes, dtype=dtype)
    lowest = zeros.scatter_reduce(0, source, around, "amin", include_self=False)
    highest = zeros.scatter_reduce(0, source, around, "amax", include_self=False)
    mean = zeros.index_add(0, source, around) / count
    deviation = zeros.index_add(0, source, (around - mean[source]).square())
    return torch.stack([degree, lowest, highest, mean, (deviation / count).sqrt()], dim=1)
