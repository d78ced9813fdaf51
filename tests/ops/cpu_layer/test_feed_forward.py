import pytest
import torch
from twice import assert_same

from gssc.nn import GSSCLayer
from gssc.nn.gine import GINE
from gssc.ops.cpu_layer import feed_forward

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("masked", [True, False])
def test_feed_forward(rows, masked):
    masks = [torch.randint(2, (rows, width)).double() * 1.5 if masked else None for width in (6, 3)]
    inputs = [torch.randn(rows, 3), torch.randn(6, 3), torch.randn(6), torch.randn(3, 6), torch.randn(3)]
    assert_same(
        lambda h, *weights: feed_forward.feed_forward(h, weights, *masks),
        lambda *given: feed_forward.composed(*given, *masks),
        inputs,
    )


def test_hooks_of_its_linears_are_called():
    layer, seen = GSSCLayer(4, local=GINE(4)), []
    x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
    plain, _ = layer(x, edge_index)
    layer.feed_forward[0].register_forward_hook(lambda *given: seen.append(1))
    hooked, _ = layer(x, edge_index)
    assert seen == [1]
    torch.testing.assert_close(hooked, plain)
