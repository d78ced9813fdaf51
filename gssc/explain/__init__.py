"""Looking inside a trained model: the kernels it has learned, and how far influence reaches.

In the order in which data flows: `kernel`, `jacobian` (influence), `atoms` (of molecules: names, attributions),
`layout` (distances, and where to draw nodes), `draw`, `write` (a run and a graph in, pictures and tables out).
"""

from gssc.explain.atoms import attributions
from gssc.explain.jacobian import influence, without_global
from gssc.explain.kernel import kernel_row, self_weight
from gssc.explain.layout import hops_to

__all__ = ["attributions", "hops_to", "influence", "kernel_row", "self_weight", "without_global"]
