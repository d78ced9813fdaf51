"""A graph cut into shards: for every process its nodes, the edges that enter them, and whom it tells what."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gssc.checks import check_shape, fail
from gssc.ops.context import undirected_degree

Tensors = dict[str, Tensor]


def cut_graph(
    edge_index: Tensor, part: Tensor, ranks: int, of_nodes: Mapping[str, Tensor], of_edges: Mapping[str, Tensor]
) -> Iterator[Tensors]:
    """The tensors of one shard after another, for edges [2, E] and the process of every node, ``part`` [N].

    Of each ``nodes`` and ``halo``, numbers in the graph; ``edge_index`` in local numbers, by target, then source;
    ``send``, ``send_counts``, ``receive_counts``, ``entering`` and ``neighbors`` as `gssc.ops.halo.Halo` has them; and
    its rows of ``of_nodes`` and ``of_edges``.
    """
    nodes = part.shape[0]
    check_shape("part", part, nodes)
    if nodes and not (int(part.min()) >= 0 and int(part.max()) < ranks):
        fail("part", f"numbers of processes in 0..{ranks - 1}", f"{int(part.min())}..{int(part.max())}")
    source, target = edge_index.long()
    others = source != target
    entering = torch.bincount(target[others], minlength=nodes).int()
    neighbors = undirected_degree(edge_index, nodes).int()
    owned = torch.argsort(part, stable=True).split(torch.bincount(part, minlength=ranks).tolist())
    place = torch.empty(nodes, dtype=torch.int64)  # of a node among those of its process
    for rows in owned:
        place[rows] = torch.arange(rows.numel())
    # By process of the target, then target, then source; parallel edges keep their order.
    order = torch.argsort(target * max(nodes, 1) + source, stable=True)
    order = order[torch.argsort(part[target[order]], stable=True)]
    edges = order.split(torch.bincount(part[target], minlength=ranks).tolist())
    halos = []
    for rank in range(ranks):
        far = torch.unique(source[edges[rank]])
        far = far[part[far] != rank]
        halos.append(far[torch.argsort(part[far], stable=True)])
    local = torch.empty(nodes, dtype=torch.int64)
    for rank in range(ranks):
        wanted = [place[halo[part[halo] == rank]] for halo in halos]
        both = torch.cat([owned[rank], halos[rank]])
        local[both] = torch.arange(both.numel())
        shard = {
            "nodes": owned[rank],
            "halo": halos[rank],
            "edge_index": local[torch.stack([source[edges[rank]], target[edges[rank]]])].int(),
            "send": torch.cat(wanted).int(),
            "send_counts": torch.tensor([rows.numel() for rows in wanted]),
            "receive_counts": torch.bincount(part[halos[rank]], minlength=ranks),
            "entering": entering[both],
            "neighbors": neighbors[owned[rank]],
        }
        shard |= {name: rows[owned[rank]] for name, rows in of_nodes.items()}
        yield shard | {name: rows[edges[rank]] for name, rows in of_edges.items()}
