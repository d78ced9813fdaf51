"""A model made ready for shards: what it normalises over, and whether every part of it can be divided."""

import torch
import torch.distributed as dist
from torch import nn

from gssc.checks import fail
from gssc.nn import EdgeHead, EigenvectorEncoder, GraphHead, GSSCLayer, GSSConv
from gssc.nn.norm import in_eval_mode, synchronize_batch_norms


def make_ready(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Let a model take shards: its norms are those of all processes. What cannot be divided is an error of one line."""
    for module in model.modules():
        if isinstance(module, EdgeHead | EigenvectorEncoder):
            fail("model", "no LapPE or predictions of pairs, for shards", type(module).__name__)
        if isinstance(module, GraphHead) and module.pool == "max":
            fail("model.pool", "'sum' or 'mean' for shards", "'max'")
        if isinstance(module, GSSCLayer):
            if not isinstance(module.glob, GSSConv | None) and not getattr(module.glob, "sharded", False):
                fail("model.glob", "GSSConv, or a module with sharded = True, for shards", type(module.glob).__name__)
            if module.local is not None:
                _check_local(module)
    if dist.is_available() and dist.is_initialized():
        synchronize_batch_norms(model, group)


@torch.no_grad()
def _check_local(layer: GSSCLayer) -> None:
    """Fail where a convolution looks beyond neighbours: on the path 0 - 1 - 2, node 2 must not notice node 0."""
    local = layer.local
    assert local is not None
    if "context" in layer._local_takes:  # one of our own
        return
    weight = next(local.parameters(), torch.empty(0))
    x = torch.linspace(-1.0, 1.0, 3 * layer.channels, dtype=weight.dtype, device=weight.device).view(3, -1)
    outputs, changed = [], x.new_tensor([[-2.0], [1.0], [1.0]])
    with in_eval_mode(local):
        for features, edges in ((x, [[0, 1, 1, 2], [1, 0, 2, 1]]), (x * changed, [[1, 2], [2, 1]])):
            edge_index = torch.tensor(edges, device=weight.device)
            known = {"edge_attr": features.new_ones(edge_index.shape[1], layer.channels)}
            known["edge_weight"] = known["edge_attr"][:, 0]
            out = local(features, edge_index, **{name: known[name] for name in layer._local_takes if name in known})
            outputs.append((out[0] if isinstance(out, tuple) else out)[2])
    near, alone = outputs
    if not torch.allclose(near, alone, rtol=1e3 * torch.finfo(weight.dtype).eps, atol=0.0):
        expected = "a convolution that looks at neighbours alone for shards, or local='gcn' in place of GCNConv"
        fail("model.local", expected, type(local).__name__)
