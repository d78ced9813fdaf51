"""How work on edges is cut into programs."""

from dataclasses import dataclass
from typing import Any

import torch

from gssc.ops.triton_support import multiprocessors, power_of_two

PROGRAMS = 16  # per processor, where there are enough nodes
WIDTHS: tuple[int, ...] = (128, 64, 32)  # of blocks of channels, if they divide their number
ELEMENTS = 512  # of a block of edges and channels: 16 numbers per thread of a warp


@dataclass(frozen=True)
class Grid:
    """Programs over nodes, each with a share of consecutive ones, or over blocks of edges; by blocks of channels."""

    nodes: int
    edges: int
    channels: int
    device: torch.device

    @property
    def block_c(self) -> int:
        """A power of two that divides C where one of 32 and more does; else the one above C, up to 128."""
        dividing = [width for width in WIDTHS if self.channels % width == 0]
        return dividing[0] if dividing else min(power_of_two(self.channels, 16), 128)

    @property
    def block_e(self) -> int:
        """Edges that one step takes: about the mean degree, as far as one warp can hold them."""
        return min(power_of_two(-(-self.edges // max(self.nodes, 1)), 4), max(ELEMENTS // self.block_c, 4))

    @property
    def share(self) -> int:
        """Nodes of a program."""
        return max(-(-self.nodes // (PROGRAMS * multiprocessors(self.device))), 1)

    @property
    def programs(self) -> int:
        return -(-self.nodes // self.share)

    def _launch(self, kernel: Any, programs: int, block_e: int, warps: int, *arguments: Any, **flags: Any) -> None:
        shape = {"C": self.channels, "BLOCK_E": block_e, "BLOCK_C": self.block_c}
        blocks = -(-self.channels // self.block_c)
        # Blocks of channels are the slow axis: what is gathered from the nodes then fits into the cache.
        kernel[(programs, blocks)](*arguments, **shape, **flags, num_warps=warps, num_stages=1)

    def over_nodes(self, kernel: Any, *arguments: Any, **flags: Any) -> None:
        """The kernel takes, after its own arguments, the number of nodes and the share of a program.

        A program is one warp: its sums need no barrier.
        """
        self._launch(kernel, self.programs, self.block_e, 1, *arguments, self.nodes, self.share, **flags)

    def over_rows(self, kernel: Any, rows: int, *arguments: Any, **flags: Any) -> None:
        """The kernel takes, after its own arguments, the number of rows (nodes or edges), of which it has 32."""
        warps = max(1, min(32 * self.block_c // 512, 4))
        self._launch(kernel, -(-rows // 32), 32, warps, *arguments, rows, **flags)
