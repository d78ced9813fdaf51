"""Where and how runs take place: in one process, or in several that share every batch (started by torchrun)."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gssc.spectra.cache import CacheArgument

OF_GLOO = ("gloo", "pair closure", "connection closed", "connection reset")  # whose errors have no class of their own


class LostProcessError(ValueError):
    """Another process died or stalled. Threads that talk to it may live as long as this one: end it by ``os._exit``."""


@dataclass(frozen=True)
class Processes:
    """One process among those that train together; the first of them writes files."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, graphs: Tensor, empty: int) -> Tensor:
        """The own part of a joint batch; the number ``empty`` stands for a graph without nodes."""
        if self.world == 1:
            return graphs
        part = graphs[self.rank :: self.world]
        return part if part.numel() else torch.tensor([empty])

    def sum(self, statistic: Tensor) -> Tensor:
        """The sum over all processes; not differentiable."""
        if self.world == 1:
            return statistic
        total = statistic.detach().clone()
        dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        if self.world == 1:
            return flag
        device = torch.device("cuda", self.local_rank) if dist.get_backend() == "nccl" else torch.device("cpu")
        return bool(self.sum(torch.tensor(float(flag), device=device)) > 0)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Gradients are averaged over processes."""
        if self.world == 1:
            return model
        # Statistics are the same everywhere (BatchNorm reduces them), and a layer may leave a parameter unused.
        return DistributedDataParallel(model, broadcast_buffers=False, find_unused_parameters=True)


@dataclass(frozen=True)
class RunSettings:
    """Where and how a run takes place: nothing here changes its result, but for ``finish``, which ends it early."""

    device: torch.device
    cache: CacheArgument = True
    resume: bool = False
    finish: bool = False  # end where the checkpoint stands, with the weights selected so far
    deadline: float | None = None  # on time.monotonic()
    quiet: bool = False
    threads: int | None = None  # that keep their number; by default, all cores but those that other programs use
    live: bool = True  # a display that moves, in a terminal
    called: str = "seed"  # what the display calls a run, before its number
    processes: Processes = field(default_factory=Processes)
    find_start: Callable[[str], Path] = Path  # the folder that ``train.start`` means, where that may be a name or a URL

    @property
    def gives_way(self) -> bool:
        """Whether the threads of operations may become fewer, which changes rounding."""
        return self.threads is None and self.device.type == "cpu" and self.processes.world == 1


@contextmanager
def joined(device: str, seconds: float = 600.0) -> Iterator[Processes]:
    """Join the processes that torchrun started, if it did: NCCL for GPUs, Gloo for CPUs.

    None waits longer than so many ``seconds`` for the others.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes()
        return
    try:
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=seconds))
        yield Processes(dist.get_rank(), world, int(os.environ.get("LOCAL_RANK", "0")))
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(words in str(error).lower() for words in OF_GLOO):
            raise
        expected = f"all {world} to answer within {seconds:g} s (--rank-timeout)"
        raise LostProcessError(f"processes: expected {expected}, got one that died or stalled") from None
    finally:
        leave()


def leave() -> None:
    """Leave the other processes, where there are any."""
    if dist.is_initialized():
        # Never freed: that would wait, with Python's lock, for threads of Gloo that need the lock to end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
        dist.destroy_process_group()
