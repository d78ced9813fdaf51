"""How work on edges is cut into programs."""

from functools import lru_cache
from typing import Any

import torch

from gssc.ops.launch import launch
from gssc.ops.triton_support import multiprocessors, power_of_two

PROGRAMS = 32  # per processor, where there are enough nodes
WIDTHS: tuple[int, ...] = (128, 64, 32)  # of blocks of channels, if they divide their number
ELEMENTS = 256  # of a block of edges and channels: 8 numbers per thread of a warp


@lru_cache(maxsize=256)
class Grid:
    """Programs over nodes, each with a share of consecutive ones, or over blocks of edges; by blocks of channels."""

    def __init__(self, nodes: int, edges: int, channels: int, device: torch.device) -> None:
        self.nodes, self.edges, self.channels = nodes, edges, channels
        # A power of two that divides C where one of 32 and more does; else the one above C, up to 128.
        widths = [width for width in WIDTHS if channels % width == 0]
        self.block_c = widths[0] if widths else min(power_of_two(channels, 16), 128)
        # Edges that one step takes: about the mean degree, as far as one warp can hold them.
        self.block_e = min(power_of_two(-(-edges // max(nodes, 1)), 4), max(ELEMENTS // self.block_c, 4))
        # Nodes of a program.
        self.share = max(-(-nodes // (PROGRAMS * multiprocessors(device))), 1)
        self.programs = -(-nodes // self.share)
        # Blocks of channels are the slow axis: what is gathered from the nodes then fits into the cache.
        self.blocks = -(-channels // self.block_c)

    def over_nodes(self, kernel: Any, *tensors: Any, numbers: tuple[float, ...] = (), **flags: Any) -> None:
        """The kernel takes, after its own numbers, that of nodes and the share of a program.

        A program is one warp: its sums need no barrier. With several, steps wait for each other, also at high degrees.
        """
        if self.nodes:
            launch(
                kernel, (self.programs, self.blocks), *tensors, numbers=(*numbers, self.nodes, self.share),
                C=self.channels, BLOCK_E=self.block_e, BLOCK_C=self.block_c, **flags, num_warps=1, num_stages=1,
            )  # fmt: skip

    def over_rows(self, kernel: Any, rows: int, *tensors: Any, numbers: tuple[float, ...] = (), **flags: Any) -> None:
        """The kernel takes, after its own numbers, that of rows (nodes or edges), of which it has 32."""
        if rows:
            launch(
                kernel, (-(-rows // 32), self.blocks), *tensors, numbers=(*numbers, rows),
                C=self.channels, BLOCK_E=32, BLOCK_C=self.block_c, **flags,
                num_warps=max(1, min(32 * self.block_c // 512, 4)), num_stages=1,
            )  # fmt: skip
