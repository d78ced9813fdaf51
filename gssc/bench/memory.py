"""Peak memory of a piece of work: of the process on the host, or of the allocator on a GPU."""

import ctypes
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def _status(key: str) -> float:
    """A field of /proc/self/status in MB."""
    line = next(line for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith(key))
    return float(line.split()[1]) / 1024.0


@contextmanager
def peak_memory(device: str = "cpu") -> Iterator[dict[str, float]]:
    """Inside, work; then ``["mb"]`` says by how much memory rose above its level at the start, at the highest.

    On the host the kernel's high-water mark is reset first (Linux); where that is not possible, a rise that stays
    below the highest level so far reads as 0.
    """
    out: dict[str, float] = {}
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated() / 2**20
        yield out
        torch.cuda.synchronize()
        out["mb"] = torch.cuda.max_memory_allocated() / 2**20 - start
        return
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc: give freed memory back, so that using it again counts
        ctypes.CDLL(None).malloc_trim(0)
    try:
        CLEAR.write_text("5", encoding="utf-8")
        start = _status("VmRSS:")
        yield out
        out["mb"] = _status("VmHWM:") - start
    except OSError:
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        yield out
        out["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0 - start
