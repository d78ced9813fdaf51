"""Computing layers again changes nothing but what is kept."""

import pytest
import torch
from graphs import random_graph

from gssc import GSSC, LaplacianSpectrum, model_inputs, ops


def case(nodes=20):
    graph = random_graph(nodes, 4 / nodes)
    graph.x, graph.edge_attr = torch.randn(nodes, 3), torch.randn(graph.num_edges, 2)
    return model_inputs(LaplacianSpectrum(k=5)(graph))


def trained(inputs, recompute, layers=5, **form):
    torch.manual_seed(1)
    model = GSSC(1, 8, layers, node_features=3, edge_features=2, recompute=recompute, **form).to(inputs["x"].device)
    torch.manual_seed(2)
    out = model(**inputs)
    grads = torch.autograd.grad(out.sum(), list(model.parameters()), allow_unused=True)
    return out.detach(), grads, dict(model.named_buffers())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("form", [{"dropout_local": 0.2, "dropout_ffn": 0.1}, {"jumping_knowledge": True}], ids=str)
@pytest.mark.parametrize("recompute", [1, 2, 3, 5, 9])
def test_output_gradients_and_statistics_are_the_same(recompute, form):
    inputs = case()
    out, grads, buffers = trained(inputs, 0, **form)
    again, others, statistics = trained(inputs, recompute, **form)
    assert torch.equal(out, again)
    for one, other in zip(grads, others, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert all(torch.equal(value, statistics[name]) for name, value in buffers.items())


@pytest.mark.parametrize("local", ["gatedgcn", "gine"])
@pytest.mark.parametrize("recompute", [1, 2])
def test_with_kernels_too(recompute, local, pretend_gpu):
    """Where nested pieces are computed again, what a backward pass has kept can be asked for once only."""
    pytest.importorskip("triton")
    pretend_gpu(True, ops.norm, ops.gated_gcn, ops.conv, ops.gine)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in case(8).items()}
    form = {"dropout_ffn": 0.1, "dropout_local": 0.2, "local": local, "layers": 3}
    results = [trained(inputs, level, **form) for level in (0, recompute)]
    for one, other in zip(*(grads for _, grads, _ in results), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert torch.equal(results[0][0], results[1][0])


def test_what_is_kept():
    """Bytes that autograd holds after the forward pass, without parameters: less with 1, least with groups."""
    inputs = case()

    def kept(recompute):
        torch.manual_seed(1)
        model = GSSC(1, 8, 9, node_features=3, edge_features=2, recompute=recompute)
        seen = {}

        def keep(tensor):
            if tensor.shape[:1] == inputs["edge_index"].shape[1:]:
                seen[tensor.data_ptr()] = tensor  # held, so that its place is not used again
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(**inputs)
        return len(seen)

    plain, layers, groups = kept(0), kept(1), kept(3)
    assert groups < layers < plain


def test_evaluation_keeps_nothing_and_numbers_are_checked():
    inputs = case()
    model = GSSC(1, 8, 2, node_features=3, edge_features=2, recompute=1).eval()
    with torch.no_grad():
        assert not model(**inputs).requires_grad
    with pytest.raises(ValueError, match="recompute: expected a positive integer, got -1"):
        GSSC(1, 8, 2, recompute=-1)
