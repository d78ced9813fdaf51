"""Weights drawn anew: ``reset_parameters``, as all of PyG's modules have it."""

from typing import Any

from torch_geometric.nn.inits import reset


class Resets:
    """For modules: ``reset_parameters`` does what construction did, by that of the modules inside, in their order.

    Those with parameters of their own ``draw`` what these begin with.
    """

    def reset_parameters(self: Any) -> None:
        """Draw all weights anew, as they were when the module was made."""
        for child in self.children():
            reset(child)
        self.draw()

    def draw(self) -> None:
        """First values that are not those of a module inside."""
