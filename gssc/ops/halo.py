"""One graph over several processes: what each holds of it, and what they tell each other.

Every node belongs to one process, and an edge to that of its target. A process numbers its own nodes 0 … N - 1 and
behind them its halo, H nodes elsewhere from which its edges come, in the order of their owners. In a layer two things
are told: halo rows of x, whose gradients go back to the owners, and sums over all nodes, such as the state U = PᵀX.

What is told is told in two steps, and other work is done between them; see `Exchange`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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

    def begin_extend(self, x: Tensor) -> Callable[[], Tensor]:
        """Ask for the rows of the halo; the result waits for them and gives own rows and those, [N + H, C]."""
        return (lambda: x) if self.alone else begin(_Rows(self), x)

    def begin_sum(self, statistic: Tensor) -> Callable[[], Tensor]:
        """Tell all processes a statistic; the result waits for theirs and gives the sum over all."""
        return (lambda: statistic) if self.alone else begin(_Sum(self.group), statistic)

    def sum(self, statistic: Tensor) -> Tensor:
        """The sum over all processes."""
        return self.begin_sum(statistic)()

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
        return x[:0] if self.alone else self.begin_fetch(x)()

    def begin_fetch(self, x: Tensor) -> Callable[[], Tensor]:
        return self._begin_moving(x.index_select(0, self.send), self.send_counts, self.receive_counts)

    def begin_return(self, rows: Tensor) -> Callable[[], Tensor]:
        """Halo rows [H, C] to their owners; the result waits for what others return, [S, C], as ``send`` has it."""
        return self._begin_moving(rows.contiguous(), self.receive_counts, self.send_counts)

    def _begin_moving(self, given: Tensor, counts: list[int], wanted: list[int]) -> Callable[[], Tensor]:
        rows = given.new_empty(sum(wanted), *given.shape[1:])
        work = dist.all_to_all_single(rows, given, wanted, counts, group=self.group, async_op=True)
        return _awaited(work, rows)


def _awaited(work: Any, result: Tensor) -> Callable[[], Tensor]:
    def wait() -> Tensor:
        work.wait()
        return result

    return wait


def begin_all_reduce(total: Tensor, group: dist.ProcessGroup | None) -> Callable[[], Tensor]:
    """Sum a tensor over processes in its place; the result waits for it. Without derivative."""
    return _awaited(dist.all_reduce(total, group=group, async_op=True), total)


class Exchange(ABC):
    """Something that a process tells the others, and what it makes of what they tell it: y = f(x of all, parameters).

    Both passes have two steps, and what is done between them overlaps with the way: autograd goes backward through
    steps in the reverse order, so that work between ``send`` and ``receive`` stands between ``send_back`` and
    ``receive_back``.
    """

    @abstractmethod
    def send(self, x: Tensor) -> None:
        """Begin."""

    @abstractmethod
    def receive(self, *parameters: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Wait: y, and what the backward pass needs."""

    @abstractmethod
    def send_back(self, grad: Tensor, *saved: Any) -> Sequence[Tensor | None]:
        """Begin the backward pass: gradients of the parameters."""

    @abstractmethod
    def receive_back(self) -> Tensor:
        """Wait: the gradient of x."""


def begin(exchange: Exchange, x: Tensor, *parameters: Tensor) -> Callable[[], Tensor]:
    """Send; the result receives. Differentiable once."""
    token = _Begin.apply(x, exchange)
    return lambda: _End.apply(token, exchange, *parameters)


class _Begin(torch.autograd.Function):
    """Its result is empty: it ties both steps together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        exchange.send(x.detach())
        return x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.exchange.receive_back(), None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, exchange: Exchange, *parameters: Tensor) -> Tensor:
        ctx.exchange = exchange
        result, saved = exchange.receive(*parameters)
        ctx.save_for_backward(token, *saved)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        token, *saved = ctx.saved_tensors
        return token, None, *ctx.exchange.send_back(grads[0], *saved)


class _Sum(Exchange):
    """The sum over processes. The loss of the whole is the sum of theirs, so gradients are summed likewise."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group

    def send(self, x: Tensor) -> None:
        self.total = begin_all_reduce(x.clone(memory_format=torch.contiguous_format), self.group)

    def receive(self, *parameters: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        return self.total(), ()

    def send_back(self, grad: Tensor, *saved: Any) -> Sequence[Tensor]:
        self.send(grad)
        return ()

    def receive_back(self) -> Tensor:
        return self.total()


class _Rows(Exchange):
    """Own rows and those of the halo; gradients of the latter are added to the rows of their owners."""

    def __init__(self, halo: Halo) -> None:
        self.halo = halo

    def send(self, x: Tensor) -> None:
        self.own, self.others = x, self.halo.begin_fetch(x)

    def receive(self, *parameters: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        both = torch.cat([self.own, self.others()])
        del self.own, self.others
        return both, ()

    def send_back(self, grad: Tensor, *saved: Any) -> Sequence[Tensor]:
        own = len(grad) - self.halo.size
        self.own, self.others = grad[:own], self.halo.begin_return(grad[own:])
        return ()

    def receive_back(self) -> Tensor:
        counts, back, own = self.halo.send_counts, self.others(), self.own
        out = own.to(torch.promote_types(own.dtype, torch.float32), copy=True)
        # One process after another, each of which wants a row once: the same sums in every run.
        for wanted, added in zip(self.halo.send.split(counts), back.split(counts), strict=True):
            out.index_add_(0, wanted, added.to(out.dtype))
        del self.own, self.others
        return out.to(own.dtype)
