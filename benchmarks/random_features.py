"""Random features trained in place of eigenvectors, on one graph whose nodes are predicted.

    python -m benchmarks.random_features pasadena.pt --out rows.json

The same model, loop, seeds and number of columns; what differs is what the convolution mixes with:

- *eigenvectors*: K pairs of the normalised Laplacian and a learned function of all eigenvalues;
- *random features*: K columns of `gssc.RandomFeatures`, shared among three kernels (`KERNELS`), of which the layer
  learns one gain per kernel and channel, drawn anew for every seed; and four times as many columns;
- *exact kernels*: the square roots of the same three kernels as a fixed φ of K eigenpairs: without the rest of the
  spectrum, and with the products of two roots besides;
- *none*: message passing alone.

Full batches, AdamW, a fixed number of steps; scored on the test nodes once, at the step that validation chose.
"""

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmarks.node_tasks import Trained, conclude, keep, opened, scaled
from gssc import GSSC, LaplacianSpectrum, RandomFeatures, model_inputs
from gssc.tasks import Task

KERNELS = ("diffusion", "regularized_laplacian", "random_walk")
TIME, STEPS = 8.0, 16
COLUMNS = 33
CHANNELS, LAYERS, RATE, DECAY, DROPOUT, EVERY = 64, 4, 3e-3, 1e-5, 0.2, 5


class Fixed(nn.Module):
    """A φ that learns nothing: a function of λ [G, K] and its number of channels."""

    def __init__(self, function: Callable[[Tensor], Tensor], channels: int) -> None:
        super().__init__()
        self.function, self.channels = function, channels

    def forward(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        return self.function(eigvals) * eigmask.unsqueeze(-1)


def roots(eigvals: Tensor) -> Tensor:
    """The square roots of the three kernels at λ [G, K] of the normalised Laplacian, [G, K, 3]."""
    walk = (1 - eigvals / 2).pow(STEPS // 2)
    return torch.stack([torch.exp(-TIME / 2 * eigvals), (1 + TIME * eigvals).rsqrt(), walk], dim=-1)


def prepared(name: str, data: Data, seed: int) -> tuple[Data, dict[str, Any]]:
    """The graph with what the convolution reads, and the arguments of the model that go with it."""
    if name == "none":
        return data, {"glob": "none"}
    if name.startswith("random"):
        columns = COLUMNS * (4 if name.endswith("x4") else 1)
        transform = RandomFeatures(columns // len(KERNELS), KERNELS, t=TIME, steps=STEPS, seed=seed)
        data = transform(data)
        mask = torch.ones(1, columns, dtype=torch.bool)
        data.eigvecs, data.eigvals, data.eigmask = data.random_features.float(), torch.zeros(1, columns), mask
        return data, {"phi": Fixed(lambda eigvals: transform.phi(len(eigvals)), len(KERNELS))}
    data = LaplacianSpectrum(k=COLUMNS)(data)
    return data, {"phi": Fixed(roots, len(KERNELS))} if name == "exact kernels" else {"phi_channels": 32}


MODELS = ("eigenvectors", "random features", "random features x4", "exact kernels", "none")


def train(name: str, data: Data, task: Task, seed: int, steps: int) -> tuple[Trained, int]:
    """One training: scores at the best of the steps that validation saw, seconds with those of the features."""
    start = time.perf_counter()
    data, settings = prepared(name, data, seed)
    torch.manual_seed(seed)
    settings |= dict.fromkeys(("dropout_local", "dropout_global", "dropout_ffn"), DROPOUT)
    model = GSSC(task.outputs, CHANNELS, LAYERS, node_features=data.x.shape[1], level="node", **settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    inputs, y = model_inputs(data), task.targets(data.y, data.num_nodes)
    best, weights = None, model.state_dict()
    for step in range(1, steps + 1):
        model.train()
        optimizer.zero_grad()
        task.loss(model(**inputs), y, data.train_mask).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % EVERY == 0 or step == steps:
            model.eval()
            with torch.no_grad():
                found = task.score(model(**inputs), y, data.val_mask)
            if task.better(found, best):
                best, weights = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    model.eval()
    with torch.no_grad():
        test = task.score(model(**inputs), y, data.test_mask)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Trained(best if best is not None else float("nan"), test, time.perf_counter() - start), parameters


def main(
    file: Annotated[Path, typer.Argument(help="A graph with masks: .pt, or the .npz of HeterophilousGraphDataset.")],
    models: Annotated[str, typer.Option(help="Which to train, separated by commas.")] = ",".join(MODELS),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each training.")] = 200,
    out: Annotated[Path | None, typer.Option(help="Write scores to this JSON file as well.")] = None,
) -> None:
    """Train each model with each seed; print a table."""
    data = opened(file)
    data.x = scaled(data.x.float(), "standard", data.train_mask)
    classes = int(data.y.max()) + 1
    task = Task("node", "multiclass", classes, "accuracy")
    results: dict[str, dict[str, Any]] = {}
    for name in models.split(","):
        runs, parameters = zip(*(train(name, data.clone(), task, seed, steps) for seed in range(seeds)), strict=True)
        setting = {"steps": steps, "parameters": parameters[0]}
        keep(results, f"{file.stem}/{name}", task.metric, setting, runs, out)
    conclude(results)


if __name__ == "__main__":
    typer.run(main)
