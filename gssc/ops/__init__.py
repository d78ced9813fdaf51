"""Fast maths on tensors, without parameters or configuration.

Each op is a folder: ``__init__.py`` is the public function with its checks and the one choice of backend, ``naive.py``
the judge, ``torch.py`` made of PyTorch's ops (short ones stand in the public function), ``triton.py`` launches
``kernels.py``. ``context.py`` is what all of them share of a batch.
"""

from gssc.ops.context import EdgePlan, batch_to_ptr, edge_plan, new_seeds
from gssc.ops.conv import conv_features, conv_of_linears, frequency_gains, gssc_conv, joint_frequency_gains
from gssc.ops.gated_gcn import gated_messages
from gssc.ops.gine import gine_messages, neighbor_sum
from gssc.ops.graph_sums import from_state, graph_pool, segment_sum, to_state
from gssc.ops.norm import Branch, NormState, degree_scale, dropout, residual_feed_forward, residual_norm
from gssc.ops.phi import deep_set
from gssc.ops.selective import selective_gssc_conv

__all__ = [
    "Branch",
    "EdgePlan",
    "NormState",
    "batch_to_ptr",
    "conv_features",
    "conv_of_linears",
    "deep_set",
    "degree_scale",
    "dropout",
    "edge_plan",
    "frequency_gains",
    "from_state",
    "gated_messages",
    "gine_messages",
    "graph_pool",
    "gssc_conv",
    "joint_frequency_gains",
    "neighbor_sum",
    "new_seeds",
    "residual_feed_forward",
    "residual_norm",
    "segment_sum",
    "selective_gssc_conv",
    "to_state",
]
