"""Influence is the norm of the Jacobian, and reaches where it should."""

import pytest
import torch
from explain_cases import FORMS, ONE_NODE, TWO_PARTS, make_case, permuted
from torch_geometric.data import Batch, Data
from torch_geometric.utils import total_influence

from gssc import GSSC, GSSConv, model_inputs
from gssc.explain import hops_to, influence, jacobian, without_global
from gssc.explain.jacobian import influences, mean_distance
from gssc.testing import assert_close

pytestmark = pytest.mark.usefixtures("float64")


def through_the_layers(model, data):
    """What the encoders make of nodes, and the function that the layers make of it."""
    model.eval()
    kept = {}
    hook = model.layers[0].register_forward_pre_hook(lambda m, a: kept.update(h=a[0].detach()))
    model(**model_inputs(data))
    hook.remove()

    def last(h):
        out = {}
        hooks = [
            model.layers[0].register_forward_pre_hook(lambda m, a: (h, *a[1:])),
            model.layers[-1].register_forward_hook(lambda m, a, o: out.update(h=o[0])),
        ]
        model(**model_inputs(data))
        for hook in hooks:
            hook.remove()
        return out["h"]

    return kept["h"], last


def plain_influence(model, data, u):
    """By torch.autograd.functional.jacobian, through the layers alone."""
    start, last = through_the_layers(model, data)
    return torch.autograd.functional.jacobian(lambda h: last(h)[u], start).square().sum((0, 2)).sqrt()


@pytest.mark.parametrize("form", [*FORMS, {"glob": "attention"}, {"glob": "none"}, {"local": "gine"}], ids=str)
def test_it_is_the_norm_of_the_jacobian(form):
    model, data = make_case(**form)
    both = influence(model, data, [5, 2])
    for row, u in zip(both, (5, 2), strict=True):
        assert_close(row, plain_influence(model, data, u))
        assert_close(influence(model, data, u), row)


class Layers(torch.nn.Module):
    """The layers of a model as PyG's ``total_influence`` calls one, in float32, the one type that it takes."""

    def __init__(self, last, edges):
        super().__init__()
        self.last, self.edges = last, edges

    def forward(self, x, edge_index):
        assert torch.equal(edge_index, self.edges)
        return self.last(x.double()).float()


@pytest.mark.parametrize("form", [{}, {"glob": "none"}], ids=str)
def test_its_distance_is_that_of_total_influence(form):
    model, data = make_case(**form)
    start, last = through_the_layers(model, data)
    plain = Data(x=start.float(), edge_index=data.edge_index, num_nodes=data.num_nodes)
    settings = {"max_hops": data.num_nodes - 1, "vectorize": False}  # all nodes are within reach
    by_hops, far = total_influence(Layers(last, data.edge_index), plain, **settings, normalize=False)
    nodes = list(range(data.num_nodes))
    _, sums = influences(model, data, nodes)
    hops = hops_to(data, nodes)
    assert mean_distance(sums.numpy(), hops) == pytest.approx(far, rel=1e-5)
    ours = [float(sums[torch.as_tensor(hops == hop)].sum()) / len(nodes) for hop in range(len(by_hops))]
    assert ours == pytest.approx(by_hops.tolist(), rel=1e-5)


def test_pieces_of_any_size_give_the_same(monkeypatch):
    model, data = make_case()
    expected = influence(model, data, 1)
    monkeypatch.setattr(jacobian, "ROWS", 100)
    assert_close(influence(model, data, 1), expected)


def test_renumbered_nodes_have_the_same_influence():
    model, data = make_case(selective=True)
    order, other = permuted(data)
    assert_close(influence(model, other, 4), influence(model, data, int(order[4]))[order])


def test_without_the_global_part_it_ends_where_the_layers_end():
    """A path of eight nodes, two layers: message passing sees two edges far, the convolution everywhere."""
    model, data = make_case()
    hops = torch.as_tensor(hops_to(data, [0])[0])
    near = influence(model, data, 0)
    assert near.min() > 0.0
    with without_global(model) as cut:
        far = influence(cut, data, 0)
    assert torch.equal(far > 0.0, hops <= 2)
    assert all(isinstance(layer.glob, GSSConv) for layer in model.layers)
    assert_close(influence(model, data, 0), near)


def test_other_components_and_single_nodes():
    model, data = make_case(TWO_PARTS)
    found = influence(model, data, 0)
    assert found[4:].max() < 1e-12 * found.max()
    with without_global(model):
        assert not influence(model, data, 0)[4:].any()
    model, data = make_case(ONE_NODE)
    assert influence(model, data, 0).shape == (1,)
    assert influence(model, data, 0).item() > 0.0


def test_mode_and_weights_stay():
    model, data = make_case(dropout_global=0.5)
    model.train()
    first = influence(model, data, 0)
    assert model.training
    assert torch.equal(influence(model, data, 0), first)  # no dropout
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.layers[0]._forward_pre_hooks
    assert not model.layers[-1]._forward_hooks


def test_what_cannot_be_asked():
    model, data = make_case()
    with pytest.raises(ValueError, match=r"^node: expected a node of 0\.\.7, got -9$"):
        influence(model, data, -9)
    with pytest.raises(ValueError, match=r"^data: expected one graph, got a batch of 2$"):
        influence(model, Batch.from_data_list([data, data]), 0)
    with (
        pytest.raises(ValueError, match=r"^model: expected one with a local part.*local=none$"),
        without_global(GSSC(1, 8, 1, local="none")),
    ):
        pass
