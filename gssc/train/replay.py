"""A function captured as a CUDA graph."""

import threading
from collections.abc import Callable

import torch

WARM_UP_STEPS = 3
# Capturing, and seeding with the replay that draws from the seed, concern one run at a time.
ONE_AT_A_TIME = threading.RLock()


class Replay:
    """A function without arguments or result, captured as a CUDA graph where there is a GPU, called as it is elsewhere.

    What it writes must be allocated before. ``restore`` undoes what the warm-up calls have changed.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, restore: Callable[[], None]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        if device.type != "cuda":
            return
        with ONE_AT_A_TIME:
            current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                for _ in range(WARM_UP_STEPS):
                    function()
                    restore()  # each time: a table may have one row left
            current.wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=side, capture_error_mode="thread_local"):
                function()
            current.wait_stream(side)

    def __call__(self) -> None:
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()
