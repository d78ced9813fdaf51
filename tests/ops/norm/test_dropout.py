import pytest
import torch

from gssc.ops import dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.6, 0.999])
@pytest.mark.parametrize("shape", [(400, 129), (51600,)])
def test_share_and_scale(p, shape):
    x = torch.ones(shape, dtype=torch.float64)
    shares, steps = [], 1 << (16 if p > 0.99 else 8)
    for _ in range(50):
        out = dropout(x, p, training=True)
        kept = out != 0
        shares.append(float(kept.double().mean()))
        # One scale for all, that of p rounded up or down, so that the mean is exact.
        (scale,) = out[kept].unique().tolist()
        dropped = (1 - 1 / scale) * steps
        assert abs(dropped - p * steps) < 1 + 1e-6
        assert abs(dropped - round(dropped)) < 1e-6
        assert abs(shares[-1] - 1 / scale) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    # Of p itself on average: half a step is the most that a rounded one deviates.
    spread = (p * (1 - p) / x.numel() + 0.25 / steps**2) ** 0.5
    assert abs(sum(shares) / len(shares) - (1 - p)) < 4 * spread / len(shares) ** 0.5
    # Neighbours share a draw but not their bits.
    flat = kept.flatten()[: x.numel() // 8 * 8].view(-1, 8).double()
    correlation = torch.corrcoef(flat.t())
    assert float((correlation - torch.eye(8, dtype=torch.float64)).abs().max()) < (0.3 if p > 0.99 else 0.06)


def test_off():
    x = torch.randn(5, 3)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_repeats_with_the_seed_and_passes_gradients():
    x = torch.randn(7, 5, requires_grad=True)
    torch.manual_seed(3)
    first = dropout(x, 0.3, training=True)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x, 0.3, training=True))
    first.sum().backward()
    assert torch.equal(x.grad != 0, first != 0)


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 0), (2, 1, 3)])
def test_odd_shapes(shape):
    assert dropout(torch.ones(shape), 0.5, training=True).shape == shape


def test_half_precision():
    assert dropout(torch.ones(8, dtype=torch.bfloat16), 0.5, training=True).dtype == torch.bfloat16


@pytest.mark.parametrize(("p", "training"), [(0.4, True), (0.0, True), (0.4, False)])
def test_residual(p, training):
    x, residual = torch.randn(7, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    torch.manual_seed(3)
    expected = residual + dropout(x, p, training)
    torch.manual_seed(3)
    found = dropout(x, p, training, residual=residual)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(out.square().sum(), (x, residual)) for out in (found, expected)]
    torch.testing.assert_close(*gradients)
