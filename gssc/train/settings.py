"""Where and how runs take place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from gssc.spectra.cache import CacheArgument
from gssc.train.processes import Processes


@dataclass(frozen=True)
class RunSettings:
    """Where and how a run takes place: nothing here changes its result, but for ``finish``, which ends it early."""

    device: torch.device
    cache: CacheArgument = True
    resume: bool = False
    finish: bool = False  # end where the checkpoint stands, with the weights selected so far
    deadline: float | None = None  # on time.monotonic()
    quiet: bool = False
    live: bool = True  # a display that moves, in a terminal
    called: str = "seed"  # what the display calls a run, before its number
    processes: Processes = field(default_factory=Processes)
    find_start: Callable[[str], Path] = Path  # the folder that ``train.start`` means, where that may be a name or a URL
