"""A sequence as a graph: on a path GSSC with a fixed φ is a state space convolution, a ring has no place of its own."""

import torch
from torch_geometric.data import Data

from gssc import DeepSetPhi, GSSConv, LaplacianSpectrum
from gssc.testing import assert_close


def sequence(n, ring=False):
    steps = torch.stack([torch.arange(n), torch.arange(1, n + 1) % n])[:, : n if ring else n - 1]
    edges = torch.cat([steps, steps.flip(0)], 1)
    return LaplacianSpectrum(k=n, operator="combinatorial")(Data(edge_index=edges, num_nodes=n))


def test_the_kernel_is_that_of_two_recurrences_on_the_mirrored_sequence(float64):
    n, a = 17, torch.tensor([0.2, 0.9])
    path, conv = sequence(n), GSSConv(2, self_term=False)
    with torch.no_grad():
        for linear in (conv.lin_q, conv.lin_k, conv.lin_o):
            linear.weight.copy_(torch.eye(2))
    phi = ((1 - a**2) / ((1 - a) ** 2 + a * path.eigvals.unsqueeze(-1))).sqrt()
    found = torch.stack([conv(one.view(n, 1).expand(n, 2), phi, path.eigvecs) for one in torch.eye(n)], dim=1)
    i, j = torch.arange(n).view(-1, 1, 1), torch.arange(n).view(1, -1, 1)
    images = torch.arange(-40, 41).view(-1, 1, 1, 1) * 2 * n  # where the sequence and its mirror image begin again
    expected = (a ** (i - j - images).abs() + a ** (i + j + 1 - images).abs()).sum(0)
    assert_close(found, expected, tolerance=1e-10)


def test_a_shift_of_the_tokens_shifts_the_output_on_a_ring(float64):
    ring, x = sequence(12, ring=True), torch.randn(12, 4)
    conv, phi = GSSConv(4), DeepSetPhi(4)(ring.eigvals, ring.eigmask)
    assert_close(conv(x.roll(5, 0), phi, ring.eigvecs), conv(x, phi, ring.eigvecs).roll(5, 0))
