"""The optimiser over flat tensors is PyTorch's, step by step."""

import copy
import math

import pytest
import torch
from torch import nn

from gssc.train.flat_adamw import FlatAdamW

RATE, DECAY = 0.01, 0.1


def models():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    theirs = copy.deepcopy(ours)
    plain = torch.optim.AdamW(theirs.parameters(), lr=RATE, weight_decay=DECAY)
    return ours, FlatAdamW(list(ours.parameters()), RATE, DECAY), theirs, plain


def both_step(ours, flat, theirs, plain, clip=math.inf, drop=None):
    x = torch.randn(6, 3)
    norms = []
    for model, optimizer in ((ours, flat), (theirs, plain)):
        optimizer.zero_grad()
        (100 * model(x).square().mean()).backward()
        if drop is not None:
            list(model.parameters())[drop].grad = None
        own = optimizer is flat
        norms.append(flat.clip(clip) if own else nn.utils.clip_grad_norm_(model.parameters(), clip))
        optimizer.step()
    torch.testing.assert_close(*norms)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("clip", [math.inf, 1e-3, 1e6])
def test_clipped_steps(clip):
    sides = models()
    for _ in range(5):
        both_step(*sides, clip)
    flat, plain = sides[1], sides[3]
    for ours, theirs in zip(flat.parameters, plain.param_groups[0]["params"], strict=True):
        torch.testing.assert_close(flat.state[ours], plain.state[theirs], check_dtype=False, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_parameter_without_gradient_stays():
    ours, flat, theirs, plain = models()
    both_step(ours, flat, theirs, plain, 1.0)
    before = ours[2].weight.detach().clone()
    both_step(ours, flat, theirs, plain, 1.0, drop=2)
    assert torch.equal(ours[2].weight, before)
    both_step(ours, flat, theirs, plain, 1.0)  # its steps are behind those of the others from now on
    assert flat.steps.tolist() == [3, 3, 2, 3, 3, 3]


@pytest.mark.usefixtures("float64")
def test_a_parameter_that_was_moved_is_still_updated():
    ours, flat, theirs, plain = models()
    ours[0].weight.data = ours[0].weight.data.clone()
    for _ in range(3):
        both_step(ours, flat, theirs, plain, 1.0)


@pytest.mark.usefixtures("float64")
def test_the_rate_is_that_of_the_group():
    ours, flat, theirs, plain = models()
    for rate in (0.5, 0.0, 0.1):
        flat.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = rate
        both_step(ours, flat, theirs, plain, 1.0)


@pytest.mark.usefixtures("float64")
def test_steps_without_clipping_and_copies():
    ours, flat, theirs, plain = models()
    x = torch.randn(6, 3)
    for model, optimizer in ((ours, flat), (theirs, plain)):
        model(x).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=1e-12)
    twin = copy.deepcopy(ours)  # has tensors of its own
    kept = copy.deepcopy(twin.state_dict())
    both_step(ours, flat, theirs, plain)
    torch.testing.assert_close(dict(twin.state_dict()), dict(kept), rtol=0, atol=0)
