"""The shard of one process: what the model takes, and the targets of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gssc.ops.halo import Halo

NARROW = ("gcn", "gine", "none")  # local parts that take edges in int32, which need no copy of them
OF_MODEL = ("x", "edge_attr", "eigvals", "eigvecs", "eigmask", "rwse")


@dataclass(frozen=True, eq=False)
class Shard:
    """What one process holds of a graph."""

    tensors: Mapping[str, Tensor]  # of `gssc.shards.cut.cut_graph`, and eigvals and eigmask, the same in all shards
    nodes: int  # of the whole graph
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a value); where they are used
    group: dist.ProcessGroup | None = None  # the processes; None for all
    index: torch.dtype = torch.int64  # of edges; int32 is as in the file, for `NARROW` local parts

    @cached_property
    def halo(self) -> Halo:
        """What is told to whom."""
        sent, received = (self.tensors[f"{name}_counts"].tolist() for name in ("send", "receive"))
        send, entering, neighbors = (self.here(name) for name in ("send", "entering", "neighbors"))
        return Halo(self.nodes, send.long(), sent, received, entering, neighbors, self.group)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The arguments of ``GSSC.forward``."""
        found = {name: self.here(name) for name in OF_MODEL if name in self.tensors}
        sizes = {"num_nodes": self.tensors["nodes"].numel(), "num_graphs": 1}
        return {"x": None, "edge_index": self.here("edge_index").to(self.index), "halo": self.halo} | found | sizes

    def here(self, name: str) -> Tensor:
        """One of the tensors on the device, floating point in the default type."""
        rows = self.tensors[name].to(self.device)
        return rows.to(torch.get_default_dtype()) if rows.is_floating_point() else rows
