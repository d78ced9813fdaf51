"""Fast maths on tensors, without parameters or configuration.

Each op is a folder: ``__init__.py`` is the public function with its checks and the one choice of backend, ``naive.py``
the judge, ``torch.py`` made of PyTorch's ops, ``triton.py`` launches ``kernels.py``.
"""

from gssc.ops.conv import conv_features, frequency_gains, gssc_conv, joint_frequency_gains
from gssc.ops.edges.plan import EdgePlan, edge_plan
from gssc.ops.embedding import embedding_sum
from gssc.ops.gated_gcn import gated_messages
from gssc.ops.gine import gine_messages, neighbor_sum
from gssc.ops.graph_sums import from_state, segment_sum, to_state
from gssc.ops.norm import Branch, NormState, residual_norm
from gssc.ops.phi import deep_set
from gssc.ops.pool import graph_pool
from gssc.ops.ptr import batch_to_ptr
from gssc.ops.rowwise import degree_scale, dropout, relu_dropout
from gssc.ops.seeds import dropout_seeds, new_seeds
from gssc.ops.selective import selective_gssc_conv

__all__ = [
    "Branch",
    "EdgePlan",
    "NormState",
    "batch_to_ptr",
    "conv_features",
    "deep_set",
    "degree_scale",
    "dropout",
    "dropout_seeds",
    "edge_plan",
    "embedding_sum",
    "frequency_gains",
    "from_state",
    "gated_messages",
    "gine_messages",
    "graph_pool",
    "gssc_conv",
    "joint_frequency_gains",
    "neighbor_sum",
    "new_seeds",
    "relu_dropout",
    "residual_norm",
    "segment_sum",
    "selective_gssc_conv",
    "to_state",
]
