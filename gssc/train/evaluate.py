"""Scores and predictions of a model on the graphs of a store."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from gssc.nn.norm import in_eval_mode
from gssc.tasks import Task
from gssc.train.store import Batch, GraphStore


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 for matrix products where the recipe asks for it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def default_dtype(precision: str) -> Iterator[None]:
    """float64 as the default where the recipe asks for it; products of float32 in tf32 where it asks for that."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "float64" else before)
    try:
        with float32_products("high") if precision == "tf32" else nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def float32_products(precision: str = "highest") -> Iterator[None]:
    """Products of float32 in float32, whatever the recipe asks for (scores that other machines can repeat), or less."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def batches_in_order(store: GraphStore, batch_size: int) -> Iterator[Batch]:
    """All graphs, in their order."""
    for graphs in torch.arange(store.num_graphs).split(batch_size):
        yield store.batch(graphs)


def raw_outputs(model: nn.Module, store: GraphStore, batch_size: int, precision: str) -> Tensor:
    """What the model says of every graph or node, in their order, on the device."""
    with in_eval_mode(model), torch.no_grad(), autocast(store.device, precision):
        pieces = [model(**batch.inputs) for batch in batches_in_order(store, batch_size)]
    return store.complete(torch.cat(pieces).to(torch.get_default_dtype()))


def score(raw: Tensor, store: GraphStore, task: Task) -> tuple[float, float]:
    """Loss and metric of raw outputs for all rows of a store; the device is asked once, at the end."""
    target, mask = store.y[:-1], None if store.mask is None else store.mask[:-1]
    return float(task.loss(raw, target, mask)), task.score(raw, target, mask)


def predictions(raw: Tensor, store: GraphStore, task: Task) -> dict[str, Tensor]:
    """``prediction`` in the units of the data (or probabilities) and ``target`` of all rows of a store, on the CPU.

    Masked rows are left out.
    """
    rows = slice(None) if store.mask is None else store.mask[:-1]
    return {"prediction": task.predict(raw)[rows].cpu(), "target": store.y[:-1][rows].cpu()}
