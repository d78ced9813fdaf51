"""What processes tell each other is on its way while other work is done, in both passes."""

import pytest
import torch
import torch.distributed as dist

from gssc import GSSCLayer, GSSConv, graph_context
from gssc.nn import GatedGCN
from gssc.nn.norm import BatchNorm
from gssc.ops import conv
from gssc.ops.halo import Halo


@pytest.fixture
def events(monkeypatch):
    """What begins (``a >``) and is waited for (``> a``) where the other one of two processes tells zeros."""
    said: list[str] = []

    class Work:
        def __init__(self, what):
            self.what = what
            said.append(f"{what} >")

        def wait(self):
            said.append(f"> {self.what}")

    def exchange(rows, given, wanted, counts, group, async_op):
        rows.zero_()
        return Work("rows")

    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(dist, "get_rank", lambda group=None: 0)
    monkeypatch.setattr(dist, "all_to_all_single", exchange)
    monkeypatch.setattr(
        dist, "all_reduce", lambda total, group, async_op: Work("state" if total.dim() == 3 else "norm")
    )
    return said


class Told(torch.autograd.Function):
    """Nothing; says when each pass comes through."""

    @staticmethod
    def forward(ctx, x, said, what):
        ctx.told = said, what
        said.append(what)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        said, what = ctx.told
        said.append(what)
        return grad, None, None


def test_rows_states_and_moments_travel_while_other_work_is_done(events, monkeypatch):
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 0, 0]])  # node 4 is elsewhere
    halo = Halo(5, torch.tensor([2]), [0, 1], [0, 1], torch.tensor([2, 1, 1, 1, 0]))
    layer = GSSCLayer(4, GatedGCN(4), GSSConv(4, 3))
    for norm in layer.modules():
        if isinstance(norm, BatchNorm):
            norm.synchronized = True
    x = torch.randn(4, 4, requires_grad=True)

    def self_term(x_o, x_s, *others):
        assert x_o is None
        return (Told.apply(convolve(None, x_s, *others)[0], events, "self term"),)

    convolve = conv.FORMS["torch"]
    monkeypatch.setitem(conv.FORMS, "torch", self_term)
    monkeypatch.setitem(conv.FORMS, "triton", self_term)
    layer.local.lin_source.register_forward_hook(lambda module, args, out: Told.apply(out, events, "local"))
    layer.glob.register_forward_hook(lambda module, args, out: Told.apply(out, events, "global"))
    context = graph_context(4, edge_index=edges, halo=halo)
    out, e = layer(x, edges, torch.randn(1, 2, 3), torch.randn(4, 2), edge_attr=torch.randn(5, 4), context=context)
    # Norms of edges, of nodes in GatedGCN, of both parts together, and of the network.
    single, both = ["norm >", "> norm"], ["norm >", "norm >", "> norm", "> norm"]
    norms = [*single, *single, *both, *single]
    assert events == ["rows >", "state >", "self term", "> state", "global", "> rows", "local", *norms]
    events.clear()
    (out.sum() + e.sum()).backward()
    norms = [*single, *both, *single, *single]
    assert events == [*norms, "local", "rows >", "global", "state >", "self term", "> state", "> rows"]
