"""Small models and graphs to look inside."""

import networkx as nx
import torch
from graphs import disjoint_union, edgeless, from_networkx, path
from torch_geometric.data import Data

from gssc import GSSC, LaplacianSpectrum

FORMS = [
    {},
    {"kernel": "shared", "degree_scaling": True, "out_proj": True},
    {"self_term": False, "out_proj": True},
    {"selective": True},
    {"selective": True, "kernel": "shared", "degree_scaling": True, "out_proj": True},
    {"glob": "gsc"},
]
PATH = path(8)
TWO_PARTS = disjoint_union([from_networkx(nx.path_graph(4)), from_networkx(nx.cycle_graph(5))])
ONE_NODE = edgeless(1)


def make_case(graph: Data = PATH, **form) -> tuple[GSSC, Data]:
    """A model in float64 with statistics of its own, not yet in evaluation mode, and a graph with features."""
    torch.manual_seed(0)
    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes, x=torch.randn(graph.num_nodes, 3))
    data = LaplacianSpectrum(k=graph.num_nodes, operator="combinatorial")(data)
    model = GSSC(1, 8, 2, node_features=3, **form).double()
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # scales of degrees, of norms: not all ones
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model, data


def permuted(data: Data) -> tuple[torch.Tensor, Data]:
    """Node i of the other graph is node ``order[i]`` of this one."""
    order = torch.randperm(data.num_nodes)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    other = data.clone()
    other.x, other.eigvecs, other.edge_index = data.x[order], data.eigvecs[order], place[data.edge_index]
    return order, other
