import copy
import itertools
import math

import pytest
import torch
from torch import nn

from gssc.config import OptimConfig
from gssc.train.optimizer import (
    Average,
    FlatAdamW,
    learning_rate,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
)

RATE, DECAY = 0.01, 0.1


def small_model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def test_the_rate_warms_up_and_falls_to_zero():
    config = OptimConfig(lr=0.5, warmup_epochs=4)
    rates = [learning_rate(config, epoch, 20) for epoch in range(21)]
    assert rates[:5] == [0.0, 0.125, 0.25, 0.375, 0.5]
    assert rates[12] == pytest.approx(0.25)  # half way
    assert rates[8] == pytest.approx(0.5 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert rates[20] == 0.0
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[4:]))
    assert learning_rate(config, 4 - 1e-9, 20) == pytest.approx(0.5)


def test_no_warm_up_starts_at_the_full_rate():
    assert learning_rate(OptimConfig(lr=0.5), 0.0, 10) == 0.5
    assert learning_rate(OptimConfig(lr=0.5, warmup_epochs=10), 10, 10) == 0.5  # nothing but warm-up


def test_the_rate_is_that_of_pytorchs_schedulers():
    """One step per epoch, each at the rate of the position where it ends."""
    config = OptimConfig(lr=0.1)
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=config.lr)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    for epoch in range(1, 31):
        optimizer.step()
        cosine.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(learning_rate(config, epoch, 30), abs=1e-12)


@pytest.mark.parametrize(("decay", "kind"), [("decoupled", torch.optim.AdamW), ("l2", torch.optim.Adam)])
def test_it_is_adamw_or_adam(decay, kind):
    config = OptimConfig(lr=0.01, weight_decay=0.1, decay=decay)
    # No BatchNorm: the gradient of a bias before it is rounding noise, which Adam blows up.
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    theirs = copy.deepcopy(ours)
    own, plain = make_optimizer(ours, config), kind(theirs.parameters(), lr=0.01, weight_decay=0.1)
    for number in range(5):
        x = torch.randn(6, 3)
        own.zero_grad()
        ours(x).square().mean().backward()
        if number % 2:  # all parameters at once
            own.clip(math.inf)
        own.step()
        step(theirs, plain, x)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-7)


def test_the_state_comes_back():
    model = small_model()
    optimizer = make_optimizer(model, OptimConfig(weight_decay=0.01))
    for _ in range(3):
        step(model, optimizer, torch.randn(6, 3))
    saved = {name: value.clone() for name, value in optimizer_tensors(model, optimizer).items()}
    assert set(saved) == {f"{n}/{e}" for n, _ in model.named_parameters() for e in ("step", "exp_avg", "exp_avg_sq")}
    other = copy.deepcopy(model)
    restored = make_optimizer(other, OptimConfig(weight_decay=0.01))
    load_optimizer_tensors(other, restored, saved)
    x = torch.randn(6, 3)
    step(model, optimizer, x)
    step(other, restored, x)
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    # A copy: further steps do not reach what was saved.
    assert saved["0.weight/step"].item() == 3.0


def test_averaged_weights_follow_the_recursion_and_buffers_are_taken_as_they_are():
    model = small_model()
    average = Average(model, 0.5)
    expected = {name: value.double().clone() for name, value in model.named_parameters()}
    for t in range(1, 13):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        model(torch.randn(5, 3))
        average.update(model)
        decay = min(0.5, (1 + t) / (10 + t))
        for name, parameter in model.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * parameter.detach().double()
    for name, value in model.state_dict().items():
        if name in expected:
            torch.testing.assert_close(average.weights[name].double(), expected[name], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal((model.state_dict() | average.weights)[name], value)
    assert int(average.steps) == 12


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
