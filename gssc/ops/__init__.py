"""Fast maths on tensors, without parameters or configuration. Each op has a plain reference beside it."""

from gssc.ops.conv import conv_features, frequency_gains, gssc_conv, joint_frequency_gains
from gssc.ops.degree_scale.naive import degree_scale
from gssc.ops.edges.plan import EdgePlan, edge_plan
from gssc.ops.graph_sums import from_state, segment_sum, to_state
from gssc.ops.ptr import batch_to_ptr
from gssc.ops.selective import selective_gssc_conv

__all__ = [
    "EdgePlan",
    "batch_to_ptr",
    "conv_features",
    "degree_scale",
    "edge_plan",
    "frequency_gains",
    "from_state",
    "gssc_conv",
    "joint_frequency_gains",
    "segment_sum",
    "selective_gssc_conv",
    "to_state",
]
