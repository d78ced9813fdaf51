"""How nodes of a packed batch are cut into tiles, each of one graph; ``conv/kernels.py`` tells how kernels find them.

Graphs of several tiles leave one partial sum per tile, added in a fixed order by a kernel of their own: no atomics, so
results repeat bit by bit. Nothing looks at ``ptr`` on the host.
"""

from torch import Tensor

from gssc.ops.launch import kernels_of, launch
from gssc.ops.triton_support import power_of_two


class Tiles:
    """Sizes of one launch, numbers only; a tile has at most ``chunk`` nodes."""

    def __init__(self, nodes: int, graphs: int, chunk: int) -> None:
        self.graphs, self.chunk, self.count = graphs, chunk, nodes // chunk + graphs
        # What a kernel needs to find its tile: the last arguments of all, with the steps of a search among the graphs.
        self.numbers = nodes, graphs, (graphs - 1).bit_length() + 1, chunk
        # Which kinds of graphs, of one tile and of several, sums may meet: code for others is left out of a kernel.
        self.kinds = {"SMALL_GRAPHS": graphs > 1 or nodes <= chunk, "LARGE_GRAPHS": nodes > chunk}

    def partial(self, total: Tensor) -> Tensor | None:
        """Room for the sums of all tiles, where sums over graphs are ``total`` [G, ...] and may have several tiles."""
        return total.new_empty((self.count, *total.shape[1:])) if self.kinds["LARGE_GRAPHS"] else None

    def reduce(
        self, partial: Tensor, ptr: Tensor, total: Tensor, *,
        state: Tensor | None = None, product: Tensor | None = None, widest: int = 128, numbers: int = 4096,
    ) -> None:  # fmt: skip
        """Add sums [tiles, K, C] of large graphs into ``total``; ``product`` takes state ⊙ total, or sums of blocks.

        A program holds so many ``numbers``, of blocks of channels that are at most ``widest``.
        """
        kernels = kernels_of("conv")
        k, c = partial.shape[1:]
        if product is None and k * c <= widest:  # nothing depends on which column is which channel
            k, c = 1, k * c
        block_c = min(power_of_two(c, 16), widest)
        programs = max(1, min(k, 4096 // self.graphs))
        launch(
            kernels.reduce, (self.graphs, programs, -(-c // block_c)), partial, ptr, state, total, product,
            numbers=(self.chunk,), K=k, C=c, ROWS=max(numbers // block_c, 1), BLOCK_C=block_c,
            SHARED=product is not None and product.shape[2] != c, num_warps=8,
        )  # fmt: skip
