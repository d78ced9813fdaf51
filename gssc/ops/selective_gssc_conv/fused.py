"""Selection with the products of Triton: no look at sizes of graphs, nothing of size n K², results that repeat."""

from functools import partial

from gssc.ops.graph_state import fused
from gssc.ops.selective_gssc_conv import eager

FUSED = eager.Products(fused.to_state, fused.from_state, fused.pairs_to_state, fused.pairs_from_state)
selective_gssc_conv = partial(eager.selective_gssc_conv, by=FUSED)
