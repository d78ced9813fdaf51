"""One graph over several processes: what each holds of it, and what they tell each other.

Every node belongs to one process, and an edge to that of its target. A process numbers its own nodes 0 … N - 1 and
behind them its halo, H nodes elsewhere from which its edges come, in the order of their owners. In a layer two things
are told: halo rows of x, whose gradients go back to the owners, and sums over all nodes, such as the state U = PᵀX.

What is told is told in two steps, and other work is done between them; see `begin`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

Way = Callable[..., Iterator[Any]]


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
        if self.alone:
            return lambda: x

        def there(x: Tensor) -> Iterator[Any]:
            others = self._begin_moving(x.index_select(0, self.send), self.send_counts, self.receive_counts)
            yield
            yield torch.cat([x, others()])

        def back(grad: Tensor) -> Iterator[Any]:
            rows, halo = grad.tensor_split([len(grad) - self.size])
            others = self._begin_moving(halo.contiguous(), self.receive_counts, self.send_counts)
            yield ()
            out = rows.to(torch.promote_types(grad.dtype, torch.float32), copy=True)
            # One process after another, each of which wants a row once: the same sums in every run.
            for wanted, added in zip(self.send.split(self.send_counts), others().split(self.send_counts), strict=True):
                out.index_add_(0, wanted, added.to(out.dtype))
            yield out.to(grad.dtype)

        return begin(there, back, x)

    def begin_sum(self, statistic: Tensor) -> Callable[[], Tensor]:
        """Tell all processes a statistic; the result waits for theirs and gives the sum over all."""
        if self.alone:
            return lambda: statistic

        def both(x: Tensor) -> Iterator[Any]:
            """The loss of the whole is the sum of theirs, so gradients are summed likewise."""
            total = begin_all_reduce(x.clone(memory_format=torch.contiguous_format), self.group)
            yield ()
            yield total()

        return begin(both, both, statistic)

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
        if self.alone:
            return x[:0]
        return self._begin_moving(x.index_select(0, self.send), self.send_counts, self.receive_counts)()

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


def begin(there: Way, back: Way, x: Tensor, *parameters: Tensor) -> Callable[[], Tensor]:
    """Tell others something of x; what is returned waits for what they tell, and gives y = f(x of all, parameters).

    ``there(x)`` tells, yields for the parameters, waits, and yields y, alone or with tensors that the backward pass
    needs. ``back(grad, *needed)`` tells, yields gradients of the parameters, waits, and yields that of x. What is done
    between both steps overlaps with the way, also backward: autograd takes steps in the reverse order. No second
    derivatives.
    """
    exchange = SimpleNamespace(there=there, back=back, way=None)
    token = _Begin.apply(x, exchange)
    return lambda: _End.apply(token, exchange, *parameters)


class _Begin(torch.autograd.Function):
    """Its result is empty: it ties both steps together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Any) -> Tensor:
        ctx.exchange, exchange.way = exchange, exchange.there(x.detach())
        next(exchange.way)
        return x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        way, ctx.exchange.way = ctx.exchange.way, None
        return next(way), None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, exchange: Any, *parameters: Tensor) -> Tensor:
        found, exchange.way, ctx.exchange = exchange.way.send(parameters), None, exchange
        result, *needed = found if isinstance(found, tuple) else (found,)
        ctx.save_for_backward(token, *needed)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        token, *needed = ctx.saved_tensors
        ctx.exchange.way = ctx.exchange.back(grads[0], *needed)
        return token, None, *next(ctx.exchange.way)
