"""One graph over several processes: what each holds of it, and what they tell each other.

Every node belongs to one process, and an edge to that of its target. A process numbers its own nodes 0 … N - 1 and
behind them its halo, H nodes elsewhere from which its edges come, in the order of their owners. In a layer two things
are told: halo rows of x, whose gradients go back to the owners, and sums over all nodes, such as the state U = PᵀX.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, eq=False)
class Halo:
    """What the process that holds some nodes of a graph knows of the others."""

    nodes: int  # of the whole graph
    send: Tensor  # own rows that others want, [S]: those of the first process, then those of the next
    send_counts: list[int]  # how many each wants
    receive_counts: list[int]  # how many rows of each are wanted here; H in all
    entering: Tensor  # edges that enter each node from another one, of own and halo nodes, [N + H]
    neighbors: Tensor | None = None  # with how many nodes edges join an own node, in either direction, [N]
    group: dist.ProcessGroup | None = None  # the processes; None for all

    @property
    def size(self) -> int:
        """H."""
        return sum(self.receive_counts)

    def extend(self, x: Tensor) -> Tensor:
        """Own rows [N, C] and those of the halo behind them, [N + H, C]."""
        return x if self.alone else torch.cat([x, _Fetched.apply(x, self)])

    def sum(self, statistic: Tensor) -> Tensor:
        """The sum over all processes."""
        return statistic if self.alone else AllReduce.apply(statistic, self.group)

    @property
    def alone(self) -> bool:
        """Whether there is one process."""
        return len(self.send_counts) == 1

    @property
    def rank(self) -> int:
        return 0 if self.alone else dist.get_rank(self.group)

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, those of the first and then those of the next; without derivative."""
        if self.alone:
            return rows
        counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in self.send_counts]
        dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device), group=self.group)
        padded = torch.cat([rows, rows.new_zeros(max(map(int, counts)) - len(rows), *rows.shape[1:])])
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded, group=self.group)
        return torch.cat([part[: int(count)] for part, count in zip(gathered, counts, strict=True)])

    def fetch(self, x: Tensor) -> Tensor:
        """Halo rows [H, C] of own rows [N, C] everywhere; a collective, without derivative."""
        if self.alone:
            return x[:0]
        rows = x.new_empty(self.size, *x.shape[1:])
        wanted = x.index_select(0, self.send)
        dist.all_to_all_single(rows, wanted, self.receive_counts, self.send_counts, group=self.group)
        return rows

    def give_back(self, rows: Tensor, own: int) -> Tensor:
        """The transpose: halo rows [H, C] added to the rows of their owners, [N, C], in a fixed order."""
        back = rows.new_empty(self.send.numel(), *rows.shape[1:])
        dist.all_to_all_single(back, rows.contiguous(), self.send_counts, self.receive_counts, group=self.group)
        out = rows.new_zeros(own, *rows.shape[1:], dtype=torch.promote_types(rows.dtype, torch.float32))
        # One process after another, each of which wants a row once: the same sums in every run.
        for wanted, added in zip(self.send.split(self.send_counts), back.split(self.send_counts), strict=True):
            out.index_add_(0, wanted, added.to(out.dtype))
        return out.to(rows.dtype)


class _Fetched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, halo: Halo) -> Tensor:
        ctx.halo, ctx.rows = halo, x.shape[0]
        return halo.fetch(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.halo.give_back(grads[0], ctx.rows), None


class AllReduce(torch.autograd.Function):
    """The sum over processes. The loss of the whole is the sum of theirs, so gradients are summed likewise."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return AllReduce.apply(grads[0], ctx.group), None
