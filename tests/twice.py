"""A function against its reference: output, gradients, and gradients of gradients."""

import torch


def assert_same(function, reference, inputs):
    """Output, gradients, and gradients of gradients; ``inputs`` are tensors that need them."""
    results = []
    for implementation in (function, reference):
        leaves = [value.detach().clone().requires_grad_() for value in inputs]
        out = implementation(*leaves)
        weight = torch.linspace(-1.0, 1.0, out.numel()).view_as(out)
        plain = torch.autograd.grad((out * weight).sum(), leaves, retain_graph=True)
        first = torch.autograd.grad(out.square().sum() + (out * weight).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)
        results.append([out, *plain, *first, *second])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
