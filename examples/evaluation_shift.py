"""What changes when a model goes from training to evaluation: dropout ends, and BatchNorm takes other statistics.

Errors of a model of one number per graph on the same graphs, with and without dropout, normalised by running
statistics, by those of each batch, or by statistics re-estimated over training graphs. ``offset`` is the median of
prediction − target: what all predictions have in common.

python examples/evaluation_shift.py zinc-full --data-root data
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gssc.checks import fail
from gssc.datasets import open_dataset
from gssc.nn import reestimate_batch_norms
from gssc.nn.norm import batch_norms
from gssc.pretrained import open_model
from gssc.train.build import build_store
from gssc.train.evaluate import batches_in_order
from gssc.train.store import GraphStore


@contextmanager
def mode(model: nn.Module, *, dropped: bool, by_batch: bool) -> Iterator[None]:
    """Dropout and BatchNorm in training mode or not; running statistics stay as they are."""
    norms = list(batch_norms(model).values())
    momenta = [norm.momentum for norm in norms]
    model.train(dropped)
    for norm in norms:
        norm.train(by_batch)
        norm.momentum = 0.0
    try:
        with torch.no_grad():
            yield
    finally:
        model.eval()
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def outputs(model: nn.Module, store: GraphStore, batch_size: int) -> torch.Tensor:
    return torch.cat([model(**batch.inputs) for batch in batches_in_order(store, batch_size)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="zinc-full", help="a pretrained model, or the folder of a run")
    parser.add_argument("--data-root", default="data", help="where its dataset is, or is downloaded to")
    parser.add_argument("--split", default="val", choices=("train", "val", "test"), help="the graphs to look at")
    parser.add_argument("--graphs", type=int, default=5000, help="how many of them, and of the training graphs")
    parser.add_argument("--seed", type=int, default=0, help="of dropout")
    options = parser.parse_args()
    loaded = open_model(options.model)
    recipe, task, model = loaded.recipe, loaded.task, loaded.model
    if (task.level, task.kind, task.outputs) != ("graph", "regression", 1):
        fail("model", "one that predicts one number per graph", f"{task.kind} of {task.outputs} per {task.level}")
    data = recipe.data
    splits = open_dataset(data.dataset, options.data_root, data.seed, generate=data.generate).splits
    cpu = torch.device("cpu")
    parts = {name: splits[name].part(0, min(options.graphs, len(splits[name])), task.level) for name in splits}
    store, training = (build_store(parts[name], recipe, task.level, cpu, None) for name in (options.split, "train"))
    target = store.y[:-1, 0]
    print(f"{options.model}, {len(target):,} graphs of {options.split}")

    def show(label: str, *, dropped: bool, by_batch: bool) -> None:
        torch.manual_seed(options.seed)
        with mode(model, dropped=dropped, by_batch=by_batch):
            error = task.predict(outputs(model, store, recipe.train.batch_size))[:, 0] - target
        size = error.abs()
        print(f"{label:48} mae {size.mean():.4f}  median {size.median():.4f}  offset {error.median():+.4f}")

    show("running statistics, nothing dropped (evaluation)", dropped=False, by_batch=False)
    show("running statistics, dropout", dropped=True, by_batch=False)
    show("statistics of the batch, nothing dropped", dropped=False, by_batch=True)
    show("statistics of the batch, dropout (training)", dropped=True, by_batch=True)
    reestimate_batch_norms(model, (batch.inputs for batch in batches_in_order(training, recipe.train.batch_size)))
    show("re-estimated statistics, nothing dropped", dropped=False, by_batch=False)


if __name__ == "__main__":
    main()
