import pytest
import torch
from batches import SIZES
from twice import assert_same

from gssc.nn import GSSConv
from gssc.ops.cpu_layer import projected_conv

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("self_term", [True, False])
@pytest.mark.parametrize("sizes", [[5], [4, 4, 4], [7, 5, 9], [1, 2, 2]], ids=str)
def test_projected_conv(sizes, self_term, scaled):
    nodes, graphs, frequencies, channels = sum(sizes), len(sizes), 3, 4
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    vectors, degree = torch.randn(nodes, frequencies), torch.randint(4, (nodes,))
    x, gains, self_gains = torch.randn(nodes, channels), *torch.randn(2, graphs, frequencies, 1)
    present = {"scale": scaled, "log_scale": scaled, "w_o": True, "w_s": self_term, "w_out": True, "bias": True}
    shapes = {name: (channels,) if name in ("scale", "log_scale", "bias") else (channels, channels) for name in present}
    tensors = [torch.randn(shapes[name]) for name, there in present.items() if there]

    def unpacked(rest):
        values = iter(rest)
        own_gains = next(values) if self_term else None
        parameters = [next(values) if there else None for there in present.values()]
        return own_gains, projected_conv.Parameters(*parameters)

    def own(x, gains, *rest):
        own_gains, parameters = unpacked(rest)
        assert projected_conv.fits(x, gains, vectors, ptr, parameters)
        return projected_conv.projected_conv(x, gains, own_gains, vectors, ptr, degree, parameters)

    def other(x, gains, *rest):
        own_gains, parameters = unpacked(rest)
        logs = torch.log1p(degree.double()).unsqueeze(1)
        return projected_conv.composed(x, gains, own_gains, vectors, ptr, logs, *parameters)

    assert_same(own, other, [x, gains, *([self_gains] if self_term else []), *tensors])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_the_module_is_the_same_with_and_without(sizes, monkeypatch):
    conv = GSSConv(6, 4, kernel="shared", degree_scaling=True, out_proj=True)
    torch.nn.init.normal_(conv.degree_log_scale)
    nodes, ptr = sum(sizes), torch.tensor([0, *sizes]).cumsum(0)
    x, vectors, phi = torch.randn(nodes, 6), torch.randn(nodes, 3), torch.randn(len(sizes), 3, 4)
    degree = torch.randint(5, (nodes,))

    def run():
        conv.zero_grad()
        out = conv(x, phi, vectors, degree=degree, ptr=ptr)
        out.square().sum().backward()
        return [out, *(parameter.grad for parameter in conv.parameters())]

    fast = run()
    monkeypatch.setattr(projected_conv, "fits", lambda *given: False)
    torch.testing.assert_close(fast, run(), rtol=1e-10, atol=1e-10)


def test_a_linear_that_somebody_watches_is_called():
    conv, seen = GSSConv(4, 4, kernel="shared", out_proj=True), []
    given = torch.randn(7, 4), torch.randn(2, 3, 4), torch.randn(7, 3)
    plain = conv(*given, ptr=torch.tensor([0, 3, 7]))
    conv.lin_out.register_forward_hook(lambda *args: seen.append(1))
    torch.testing.assert_close(conv(*given, ptr=torch.tensor([0, 3, 7])), plain)
    assert seen == [1]


def test_degrees_of_a_wrong_shape_are_refused():
    conv = GSSConv(4, 4, kernel="shared", out_proj=True, degree_scaling=True)
    with pytest.raises(ValueError, match="degree"):
        conv(torch.randn(5, 4), torch.randn(1, 3, 4), torch.randn(5, 3), degree=torch.ones(1))
