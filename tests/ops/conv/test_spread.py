"""Nodes spread over processes: between the products with P the state is summed, by every backend."""

import pytest
import torch

from gssc.ops import gssc_conv, selective_gssc_conv
from gssc.testing import assert_close

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PTR = torch.tensor([0, 7], device=DEVICE)


def inputs(dtype=torch.float32):
    torch.manual_seed(0)
    x_o, x_s, vectors = torch.randn(7, 4), torch.randn(7, 4), torch.randn(7, 3)
    leaves = [tensor.to(DEVICE, dtype) for tensor in (x_o, x_s, torch.randn(1, 3, 4), torch.randn(1, 3, 4))]
    return [leaf.requires_grad_() for leaf in leaves], vectors.to(DEVICE, dtype)


@pytest.mark.parametrize("backend", ["naive", "torch", "triton"])
@pytest.mark.parametrize("times", [1, 3])
def test_the_state_is_that_of_all_processes(backend, times):
    # As if so many processes held the same nodes: the state is so many times as large, and its gradient.
    (x_o, x_s, gains, self_gains), vectors = inputs()
    out = gssc_conv(
        x_o,
        x_s,
        vectors,
        gains,
        self_gains,
        PTR,
        projection=torch.ones(4, device=DEVICE),
        backend=backend,
        reduce=lambda s: lambda: times * s,
    )
    (y_o, y_s, a, a_s), _ = inputs()
    expected = gssc_conv(
        y_o, y_s, vectors, times * a, a_s, PTR, projection=torch.ones(4, device=DEVICE), backend="torch"
    )
    assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip((x_o, x_s, gains, self_gains), (y_o, y_s, a, a_s), strict=True):
        assert_close(ours.grad, theirs.grad)


def test_one_of_the_terms_alone():
    (x_o, x_s, gains, self_gains), vectors = inputs()
    both = gssc_conv(x_o, x_s, vectors, gains, self_gains, PTR, reduce=lambda s: lambda: 2 * s)
    glob = gssc_conv(x_o, None, vectors, gains, None, PTR, reduce=lambda s: lambda: 2 * s)
    assert_close(glob + gssc_conv(None, x_s, vectors, None, self_gains, PTR, reduce=lambda s: lambda: 2 * s), both)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_selection_of_halves_is_that_of_the_whole(backend, float64):
    (x, _, phi, pairs), vectors = inputs(torch.float32 if backend == "triton" else torch.float64)
    weights = {name: torch.randn(4, 4, dtype=x.dtype).to(DEVICE) for name in ("dv", "q", "k", "sq", "sk")}
    settings = {"backend": backend, "normalize": True}
    expected = selective_gssc_conv(x, x, x, vectors, phi, pairs, weights, PTR, **settings)
    states = []  # of the second half, in the order in which the first asks for sums
    half = [torch.tensor([0, nodes], device=DEVICE) for nodes in (4, 3)]
    rest = x[4:], x[4:], x[4:], vectors[4:], phi, pairs, weights, half[1]
    given: list[torch.Tensor] = []

    def first(state):
        """The sum with what the second half has."""
        given.append(state)
        total = state + states[len(given) - 1]
        return lambda: total

    # What is summed depends on x, P and Φ alone, so both halves can say it beforehand.
    selective_gssc_conv(*rest, **settings, reduce=lambda state: states.append(state) or (lambda: state))
    out = selective_gssc_conv(x[:4], x[:4], x[:4], vectors[:4], phi, pairs, weights, half[0], **settings, reduce=first)
    assert_close(out, expected[:4], tolerance=1e-4 if backend == "triton" else 1e-12)
