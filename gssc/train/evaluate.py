"""Scores and predictions of a model on the graphs of a store."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gssc.tasks import Task
from gssc.train.store import Batch, GraphStore


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 for matrix products where the recipe asks for it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def default_dtype(precision: str) -> Iterator[None]:
    """float64 as the default where the recipe asks for it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "float64" else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode before it comes back."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def batches_in_order(store: GraphStore, batch_size: int) -> Iterator[Batch]:
    """All graphs, in their order."""
    for graphs in torch.arange(store.num_graphs).split(batch_size):
        yield store.batch(graphs)


def evaluate(
    model: nn.Module, store: GraphStore, task: Task, batch_size: int, precision: str = "float32"
) -> tuple[float, float]:
    """Mean loss and score; the device is asked once, at the end."""
    metric = task.make_metric(store.device)
    losses, counts = [], []
    with evaluating(model):
        for batch in batches_in_order(store, batch_size):
            with autocast(store.device, precision):
                raw = model(**batch.inputs)
            losses.append(task.loss(raw.to(torch.get_default_dtype()), batch.y, batch.mask))
            counts.append(batch.rows)
            metric.update(raw, batch.y, batch.mask)
    total = sum(counts)
    loss = math.fsum(x * n for x, n in zip(torch.stack(losses).tolist(), counts, strict=True)) / max(total, 1)
    return loss, metric.compute()


def predict(
    model: nn.Module, store: GraphStore, task: Task, batch_size: int, precision: str = "float32"
) -> tuple[Tensor, Tensor]:
    """Predictions in the units of the data (or probabilities) and targets, on the CPU; masked rows are left out."""
    predictions, targets = [], []
    with evaluating(model):
        for batch in batches_in_order(store, batch_size):
            with autocast(store.device, precision):
                raw = model(**batch.inputs)
            kept = slice(None) if batch.mask is None else batch.mask
            predictions.append(task.predict(raw.to(torch.get_default_dtype()))[kept].cpu())
            targets.append(batch.y[kept].cpu())
    return torch.cat(predictions), torch.cat(targets)
