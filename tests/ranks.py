"""What one of several processes does in tests of training spread over processes."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gssc import GSSC
from gssc.nn import BatchNorm
from gssc.nn.norm import reestimate_batch_norms, synchronize_batch_norms
from gssc.train.processes import leave

RANKS = 2
# Rows of every process; with one row in all, the running statistics are used. The last number is of padding rows.
ROWS = {
    "many": (5, 3, 0),
    "one": (7, 1, 0),
    "none": (8, 0, 0),
    "two": (1, 1, 0),
    "single": (1, 0, 0),
    "padded": (4, 2, 3),
}
MODELS = {
    "default": {},
    "idle": {"local": "gat"},  # one process has nothing but padding
    "encodings": {"rwse": 4, "rwse_channels": 2, "diagonal_channels": 2, "local": "gine", "jumping_knowledge": True},
}


def make_model(name: str) -> nn.Module:
    torch.manual_seed(3)
    return GSSC(2, 8, 2, node_features=3, edge_features=2, **MODELS[name])


def make_norm() -> nn.Module:
    torch.manual_seed(3)
    norm = BatchNorm(4)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def train(module: nn.Module, weights: torch.Tensor, **inputs) -> dict[str, torch.Tensor]:
    """The output, the gradients of ⟨output, weights⟩ and the buffers."""
    out = module(**inputs)
    (out[: weights.shape[0]] * weights).sum().backward()
    gradients = {f"gradient of {name}": p.grad for name, p in module.named_parameters() if p.grad is not None}
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    return {"output": out[: weights.shape[0]].detach(), **gradients, **buffers}


def work(rank: int, folder: str) -> None:
    """Process ``rank``: its part of every case in ``cases.pt``, results to ``rank-N.pt``."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{folder}/store", timeout=timeout, world_size=RANKS, rank=rank)
    cases = torch.load(f"{folder}/cases.pt", weights_only=False)
    results = {}
    for name, parts in cases["norm"].items():
        norm, part = make_norm(), parts[rank]
        synchronize_batch_norms(norm)
        x = part["x"].requires_grad_()
        results[f"norm {name}"] = {**train(norm, part["weights"], x=x, mask=part["mask"]), "gradient of rows": x.grad}
    for name, parts in cases["model"].items():
        model, part = make_model(name), parts[rank]
        synchronize_batch_norms(model)
        results[f"model {name}"] = train(model, part["weights"], **part["inputs"])
        reestimate_batch_norms(model, [part["inputs"]])
        # DistributedDataParallel averages gradients over processes; the last edge update of GatedGCN feeds nothing.
        parallel = DistributedDataParallel(make_model(name), find_unused_parameters=True)
        synchronize_batch_norms(parallel)
        results[f"parallel {name}"] = train(parallel, RANKS * part["weights"], **part["inputs"])
        results[f"model {name}"] |= {f"again {name}": buffer.clone() for name, buffer in model.named_buffers()}
    torch.save(results, f"{folder}/rank-{rank}.pt")
    leave()
