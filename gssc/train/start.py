"""Runs that begin with the weights of a trained model instead of those that the seed makes: fine-tuning.

Weights and statistics of norms are taken where name and shape are the same: all of them where the model is the same,
all but the last Linear where the targets are others. What has no counterpart begins as the seed makes it.
"""

import torch

from gssc.checks import fail
from gssc.model import GSSC

SHOWN = 3  # names of tensors in the line about those that begin anew


@torch.no_grad()
def take_weights(model: GSSC, source: str, seed: int) -> str:
    """Copy what fits of a trained model into a new one; returns what is to be said of it.

    Args:
        model: On the CPU or elsewhere; in place.
        source: ``train.start``: the name of a model that ships, the folder of a run or of a published model, or its
            URL; or OUT of `gssc train`, of which seed N continues seed N.
        seed: That of the run.
    """
    # Only here do runs know of models by name, which are made of runs.
    from gssc.pretrained.find import open_model, pretrained_names, seed_folders

    place: str = source
    if source not in pretrained_names() and (seeds := seed_folders(source)):
        own = [folder for folder in seeds if folder.name == f"seed-{seed}"]
        if not own:
            fail("train.start", f"a folder with seed-{seed}", f"{source} with {', '.join(one.name for one in seeds)}")
        place = str(own[0])
    try:
        found = open_model(place).model.state_dict()
    except ValueError as error:
        raise type(error)(f"train.start: {error}") from None
    mine = model.state_dict()
    taken = [name for name, tensor in mine.items() if name in found and found[name].shape == tensor.shape]
    parameters = dict(model.named_parameters())
    if not any(name in parameters for name in taken):
        fail("train.start", "a model that shares weights with this one", f"{place}, of which none has the same shape")
    for name in taken:
        mine[name].copy_(found[name])
    anew = [name for name in parameters if name not in taken]
    if not anew:
        return f"begins with the weights of {place}"
    count = sum(parameters[name].numel() for name in anew)
    names = ", ".join(anew[:SHOWN]) + (f" and {len(anew) - SHOWN} more" if len(anew) > SHOWN else "")
    return f"begins with the weights of {place}, but for {count:,} that begin anew ({names})"
