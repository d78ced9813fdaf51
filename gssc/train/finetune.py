"""Runs that begin with the weights of a trained model instead of those that the seed makes: fine-tuning.

Weights and statistics of norms are taken where name and shape are the same: all of them where the model is the same,
all but the last Linear where the targets are others. What has no counterpart begins as the seed makes it.
"""

from pathlib import Path

import torch

from gssc.checks import fail
from gssc.model import GSSC
from gssc.train.loaded import load_run

SHOWN = 3  # names of tensors in the line about those that begin anew


@torch.no_grad()
def take_weights(model: GSSC, folder: Path, seed: int) -> str:
    """Copy what fits of a trained model into a new one, in place; returns what is to be said of it.

    Args:
        model: On the CPU or elsewhere.
        folder: That of a run or of a published model; or OUT of `gssc train`, of which seed N continues seed N.
        seed: That of the run.
    """
    if not (folder / "config.yaml").exists() and (seeds := sorted(folder.glob("seed-*/config.yaml"))):
        folder = folder / f"seed-{seed}"
        if not (folder / "config.yaml").exists():
            others = ", ".join(path.parent.name for path in seeds)
            fail("run", f"a folder with seed-{seed}", f"{folder.parent} with {others}")
    trained = load_run(folder).model.state_dict()
    state = model.state_dict()
    taken = [name for name, tensor in state.items() if name in trained and trained[name].shape == tensor.shape]
    parameters = dict(model.named_parameters())
    if not any(name in parameters for name in taken):
        fail("run", "a model that shares weights with this one", f"{folder}, of which none has the same shape")
    for name in taken:
        state[name].copy_(trained[name])
    anew = [name for name in parameters if name not in taken]
    if not anew:
        return f"begins with the weights of {folder}"
    count = sum(parameters[name].numel() for name in anew)
    names = ", ".join(anew[:SHOWN]) + (f" and {len(anew) - SHOWN} more" if len(anew) > SHOWN else "")
    return f"begins with the weights of {folder}, but for {count:,} that begin anew ({names})"
