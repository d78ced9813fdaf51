"""What `gssc plan` counts is what a layer keeps, and what its products are."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gssc import GSSC
from gssc.shards.plan import LOCALS, held_bytes, multiply_adds

CHANNELS, FREQUENCIES = 16, 4


def step(local: str, layers: int, nodes: int, edges: int) -> tuple[int, float]:
    """Bytes that are kept for the backward pass, and multiply-adds of both, but for those in ops of this package."""
    torch.manual_seed(0)
    model = GSSC(2, CHANNELS, layers, node_features=3, edge_features=1, level="node", local=local, phi_channels=4)
    x, edge_index = torch.randn(nodes, 3), torch.randint(0, nodes, (2, edges))
    spectrum = torch.rand(1, FREQUENCIES), torch.randn(nodes, FREQUENCIES), torch.ones(1, FREQUENCIES, dtype=torch.bool)
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes(), storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(x, edge_index, *spectrum, edge_attr=torch.randn(edges, 1))
    with FlopCounterMode(display=False) as counter:  # which ops that look for speed would notice
        model(x, edge_index, *spectrum, edge_attr=torch.randn(edges, 1)).sum().backward()
    return sum(size for size, _ in kept.values()), counter.get_total_flops() / 2


@pytest.mark.parametrize("local", sorted(LOCALS))
def test_a_layer_keeps_and_multiplies_what_the_plan_says(local):
    for nodes, edges in ((2000, 3000), (1000, 8000)):
        (two, work_of_two), (three, work_of_three) = (step(local, layers, nodes, edges) for layers in (2, 3))
        sizes = nodes, edges, CHANNELS, FREQUENCIES, 1
        assert three - two == pytest.approx(held_bytes(*sizes, 4, local)["all layers"], rel=0.03)
        hidden = 7 * nodes * FREQUENCIES * CHANNELS  # of the convolution, an op
        assert work_of_three - work_of_two == pytest.approx(multiply_adds(*sizes, local) - hidden, rel=1e-3)
