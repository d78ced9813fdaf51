import pytest
import torch
from edge_batches import EDGES, gine_inputs
from twice import assert_same

from gssc.nn import GINE
from gssc.ops import edge_plan
from gssc.ops.cpu_layer import gine

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


@pytest.mark.parametrize("attributes", [True, False])
@pytest.mark.parametrize(("nodes", "pairs"), EDGES.values(), ids=EDGES.keys())
def test_gine(nodes, pairs, attributes):
    given = gine_inputs(nodes, pairs, 5)
    edge_index, plan = given["edge_index"], edge_plan(given["edge_index"], nodes)
    edges = [given["edge_attr"]] if attributes else []
    weights = [torch.randn(4, 5), torch.randn(4), torch.randn(5, 4), torch.randn(5)]

    def split(rest):
        return (rest[0], *rest[1:]) if attributes else (None, *rest)

    def own(x, *rest):
        edge_attr, eps, *weights = split(rest)
        return gine.gine(x, edge_attr, eps, weights, edge_index, plan)

    def other(x, *rest):
        edge_attr, eps, *weights = split(rest)
        return gine.composed(x, edge_attr, eps, *weights, edge_index)

    assert_same(own, other, [given["x"], *edges, torch.tensor([0.3]), *weights])


def test_edges_of_a_wrong_shape_are_refused():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="edge_attr"):
        GINE(4)(torch.randn(2, 4), edge_index, torch.randn(2, 1), plan=edge_plan(edge_index, 2))


def test_another_network_is_called():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    conv, plan = GINE(4), edge_plan(edge_index, 2)
    conv.nn[0] = torch.nn.utils.parametrizations.spectral_norm(conv.nn[0])
    conv.eval()
    given = torch.randn(2, 4), edge_index, torch.randn(2, 4)
    torch.testing.assert_close(conv(*given, plan=plan), conv(*given))
