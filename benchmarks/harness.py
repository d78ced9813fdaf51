"""Time and memory of a piece of work, on a CPU or a GPU, and the one file that results go to.

A result is a row of a CSV file that says what ran, how long it took (20th, 50th and 80th percentile), how many times
that of its baseline the time is, and where: versions, hardware, commit and date. Rows are appended, never changed.
"""

import csv
import ctypes
import gc
import platform
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from gssc.environment import commit, hardware

FIELDS = (
    *("benchmark", "workload", "variant", "p20_ms", "p50_ms", "p80_ms", "peak_mb", "baseline", "ratio", "note"),
    *("device", "threads", "torch", "python", "commit", "date"),
)
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PATIENCE = 500.0  # milliseconds of a call on a GPU from which three of them are enough


@contextmanager
def gate(name: str) -> Iterator[None]:
    """Inside, results are compared; where they disagree, the benchmark ends here with one line and times nothing."""
    try:
        yield
    except AssertionError as error:
        reason = " ".join(str(error).split())
        raise SystemExit(f"{name}: wrong, and not timed: {reason}") from None


def timed(function: Callable[[], object], seconds: float = 1.0, minimum: int = 5) -> tuple[float, float, float]:
    """Milliseconds per call (p20, p50, p80), after a warm-up, over at least ``minimum`` calls."""
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < minimum or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        samples.append(1e3 * (time.perf_counter() - start))
    p20, p50, p80 = np.percentile(samples, [20, 50, 80])
    return float(p20), float(p50), float(p80)


def append(path: Path, rows: list[dict[str, object]], device: str = "cpu") -> None:
    """Add rows to the results file, with what is the same for all of them."""
    where = {
        "device": hardware(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow({**where, **row})


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


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call (20th, 50th, 80th percentile), peak memory in MB while it ran, and how it was run.

    The peak counts everything that is allocated: parameters, inputs, and the workspaces of matrix products, of which
    there is one for each thread that launches them.
    """

    p20: float
    p50: float
    p80: float
    peak_mb: float
    how: str


def measure(function: Callable[[], object], milliseconds: float = 200.0, replay: bool = False) -> Timing:
    """Time a function on the current GPU by device events, after warm-ups.

    With ``replay`` the function is captured into a CUDA graph once and its replays are timed: no launch overhead.
    Inputs are the same every time: what fits into the cache may be read from there.
    """
    side = _side_stream()
    side.wait_stream(torch.cuda.current_stream())
    clear()
    with torch.cuda.stream(side):
        function()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        function()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / 1e6
    run, how = function, "launched"
    graph = None
    if not replay:
        clear()  # what was kept for the other stream would be missing in this one
    if replay:
        graph = torch.cuda.CUDAGraph()
        clear()
        torch.cuda.reset_peak_memory_stats()
        with torch.cuda.graph(graph, stream=side):
            function()
        peak = torch.cuda.max_memory_allocated() / 1e6
        run, how = graph.replay, "graph replay"
    run()
    samples = _events(run, 3)
    once = max(samples[1], 1e-3)
    if once < PATIENCE:
        samples = _events(run, int(min(max(milliseconds / once, 5), 200)))
    p20, p50, p80 = np.percentile(samples, [20, 50, 80])
    del graph
    return Timing(float(p20), float(p50), float(p80), peak, how)


@lru_cache(maxsize=1)
def _side_stream() -> torch.cuda.Stream:
    """One for all: matrix products keep a workspace for each stream that they have run on."""
    return torch.cuda.Stream()


def clear() -> None:
    """Give back what earlier measurements left behind, so that the next peak is its own."""
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def _events(run: Callable[[], object], times: int) -> list[float]:
    pairs = []
    for _ in range(times):
        pairs.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        pairs[-1][0].record()
        run()
        pairs[-1][1].record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def kernels_of(step: Callable[[], object], top: int = 25, width: int = 110) -> Iterator[str]:
    """A line for all kernels of a step on a GPU, then one for each of those that take the longest."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        step()
        torch.cuda.synchronize()
    kernels = [event for event in trace.key_averages() if str(event.device_type).endswith("CUDA")]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels)
    yield f"kernels take {total / 1e3:.2f} ms, {sum(event.count for event in kernels)} launches"
    for event in kernels[:top]:
        yield f"{event.self_device_time_total / 1e3:8.3f} ms {event.count:5} × {event.key[:width]}"


def copy_bandwidth(gigabytes: float = 2.0) -> float:
    """Bytes per second, read and written, of a large copy inside the GPU's memory."""
    source = torch.randn(int(gigabytes * 2.5e8), device="cuda")
    target = torch.empty_like(source)
    timing = measure(lambda: target.copy_(source))
    return 8 * source.numel() / (1e-3 * timing.p50)
