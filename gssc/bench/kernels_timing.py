"""Timing on a GPU: device events, replays of captured graphs, peak memory, copy bandwidth."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

PATIENCE = 500.0  # milliseconds of a call from which three of them are enough


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


def copy_bandwidth(gigabytes: float = 2.0) -> float:
    """Bytes per second, read and written, of a large copy inside the GPU's memory."""
    source = torch.randn(int(gigabytes * 2.5e8), device="cuda")
    target = torch.empty_like(source)
    timing = measure(lambda: target.copy_(source))
    return 8 * source.numel() / (1e-3 * timing.p50)
