import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from gssc.ops.plain import is_plain_cpu


def test_ordinary_tensors_on_the_cpu():
    assert is_plain_cpu(torch.ones(2), None, torch.nn.Parameter(torch.ones(2)))
    assert not is_plain_cpu(torch.ones(2, device="meta"))


def test_nothing_that_traces_or_transforms():
    seen = []

    def look(x):
        seen.append(is_plain_cpu(torch.ones(2)))
        return x * 2

    torch.func.grad(lambda x: look(x).sum())(torch.ones(2))
    torch.func.vmap(look)(torch.ones(2))
    make_fx(look)(torch.ones(2))
    torch.compile(look, backend="eager", fullgraph=False)(torch.ones(2))
    with FakeTensorMode():
        look(torch.ones(2))
    assert seen == [False] * 5
