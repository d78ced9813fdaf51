"""Generated graphs of the size and shape of ZINC's molecules, all at once: rings that hang on trees."""

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset


def molecule_like(graphs: int, seed: int = 0, mean: float = 23.2, spread: float = 4.5) -> InMemoryDataset:
    """A collated dataset of connected sparse graphs with about 23 nodes and 25 undirected edges each.

    Node i > 0 hangs on one of the three nodes before it, which makes a long thin tree; then rings of five and six are
    closed between nodes four or five steps apart in number. Both directions of every edge are stored, as PyG does.
    """
    generator = torch.Generator().manual_seed(seed)
    count = (mean + spread * torch.randn(graphs, generator=generator)).round().long().clamp(9, 38)
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), count.cumsum(0)])
    nodes = int(ptr[-1])
    local = torch.arange(nodes) - ptr[:-1].repeat_interleave(count)
    owner = torch.arange(graphs).repeat_interleave(count)
    back = torch.where(
        torch.rand(nodes, generator=generator) < 0.8, 1, torch.randint(1, 4, (nodes,), generator=generator)
    )
    parent = (local - back).clamp(min=0)
    child = local > 0
    reach = torch.randint(4, 6, (nodes,), generator=generator)
    closes = (local >= reach) & (torch.rand(nodes, generator=generator) < 0.155)
    ends = torch.cat(
        [torch.stack([parent[child], local[child]]), torch.stack([(local - reach)[closes], local[closes]])], dim=1
    )
    graph = torch.cat([owner[child], owner[closes]])
    return collate_edges(torch.cat([ends, ends.flip(0)], dim=1), graph.repeat(2), ptr)


def collate_edges(edge_index: Tensor, graph: Tensor, ptr: Tensor) -> InMemoryDataset:
    """An InMemoryDataset from edges [2, E] in local node numbers, the graph of each, and the node offsets."""
    order = graph.argsort(stable=True)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(graph, minlength=ptr.numel() - 1).cumsum(0)])
    dataset = InMemoryDataset()
    dataset._data = Data(x=torch.ones(int(ptr[-1]), 1), edge_index=edge_index[:, order].contiguous())
    dataset.slices = {"x": ptr, "edge_index": starts}
    return dataset
