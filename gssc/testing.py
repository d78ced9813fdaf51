"""Assertions for models built on gssc: the symmetries they must have, and agreement with a reference.

Each takes the model as a function of a PyG ``Data``, for example ``lambda data: model(**model_inputs(data))``, puts a
transformed graph beside the original and raises ``AssertionError`` with the largest difference. Use float64 where you
can: ``TOLERANCES`` holds what is expected per dtype, relative to the largest entry (and absolute below one).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

Function = Callable[[Data], Tensor]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def assert_close(actual: Tensor, expected: Tensor, what: str = "output", tolerance: float | None = None) -> None:
    """Same shape, no NaN, and the largest difference at most ``tolerance`` × max(1, largest entry expected)."""
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape {list(actual.shape)} instead of {list(expected.shape)}")
    if actual.numel() == 0:
        return
    limit = TOLERANCES[actual.dtype] if tolerance is None else tolerance
    scale = max(1.0, float(expected.detach().abs().max()))
    error = float((actual.detach() - expected.detach()).abs().max()) / scale
    if not error <= limit:  # so that NaN fails
        raise AssertionError(f"{what}: differs by {error:.2e} relative to {scale:.2e}, more than {limit:.0e}")


def permute_nodes(data: Data, permutation: Tensor) -> Data:
    """The same graph with node ``i`` moved to place ``permutation[i]``, and its edges listed in another order."""
    out = data.clone()
    inverse = permutation.argsort()
    for name, value in data.to_dict().items():
        if name == "edge_index":
            out.edge_index = permutation[value.flip(1)]
        elif name == "edge_label_index":
            out.edge_label_index = permutation[value]
        elif isinstance(value, Tensor) and data.is_edge_attr(name):
            out[name] = value.flip(0)
        elif isinstance(value, Tensor) and data.is_node_attr(name):
            out[name] = value[inverse]
    return out


def rotate_eigenspaces(data: Data, generator: torch.Generator | None = None) -> Data:
    """The same spectrum in another basis: a random orthogonal matrix inside every group of equal eigenvalues."""
    out = data.clone()
    vectors = data.eigvecs.clone()
    batch = data.batch if data.batch is not None else torch.zeros(vectors.shape[0], dtype=torch.long)
    for g, (values, mask) in enumerate(zip(data.eigvals, data.eigmask, strict=True)):
        nodes = (batch == g).nonzero()
        for value in values[mask].unique():
            columns = ((values == value) & mask).nonzero().view(-1)
            square = torch.randn(columns.numel(), columns.numel(), generator=generator, dtype=vectors.dtype)
            vectors[nodes, columns] = vectors[nodes, columns] @ torch.linalg.qr(square).Q
    out.eigvecs = vectors
    return out


def assert_permutation_equivariant(
    function: Function,
    data: Data,
    transform: Callable[[Data], Data] | None = None,
    level: str = "node",
    tolerance: float | None = None,
    seed: int = 0,
) -> None:
    """Permuting the nodes permutes the output (``level="node"``) or leaves it (``"graph"``, ``"edge"``).

    ``transform`` (such as ``LaplacianSpectrum``) is applied after the permutation: preprocessing is part of the test.
    """
    generator = torch.Generator().manual_seed(seed)
    permutation = torch.randperm(data.num_nodes or 0, generator=generator)
    apply = transform or (lambda graph: graph)
    expected = function(apply(data))
    actual = function(apply(permute_nodes(data, permutation)))
    if level == "node":
        actual = actual[permutation]
    assert_close(actual, expected, "output after a permutation of nodes", tolerance)


def assert_sign_invariant(function: Function, data: Data, tolerance: float | None = None, seed: int = 0) -> None:
    """Flipping the signs of eigenvectors changes nothing."""
    generator = torch.Generator().manual_seed(seed)
    flipped = data.clone()
    signs = torch.randint(0, 2, (data.eigvecs.shape[1],), generator=generator) * 2 - 1
    flipped.eigvecs = data.eigvecs * signs.to(data.eigvecs.dtype)
    assert_close(function(flipped), function(data), "output after sign flips", tolerance)


def assert_basis_invariant(function: Function, data: Data, tolerance: float | None = None, seed: int = 0) -> None:
    """Rotating eigenvectors inside an eigenspace changes nothing."""
    rotated = rotate_eigenspaces(data, torch.Generator().manual_seed(seed))
    assert_close(function(rotated), function(data), "output after rotations inside eigenspaces", tolerance)


def assert_batch_independent(function: Function, graphs: Sequence[Data], tolerance: float | None = None) -> None:
    """A graph gets the same output in a batch as alone (for a model: in eval mode)."""
    together = function(Batch.from_data_list(list(graphs)))
    alone = torch.cat([function(Batch.from_data_list([graph])) for graph in graphs])
    assert_close(together, alone, "output in a batch", tolerance)


def assert_no_gradient_across_graphs(function: Function, graphs: Sequence[Data]) -> None:
    """The output of one graph has exactly zero gradient in the features ``x`` of the others (node-level functions)."""
    batch = Batch.from_data_list(list(graphs))
    for g in range(len(graphs)):
        inputs = batch.clone()
        inputs.x = batch.x.detach().clone().requires_grad_()
        inside = batch.batch == g
        output = function(inputs)[inside]
        if not output.numel():
            continue
        (gradient,) = torch.autograd.grad(output.sum(), inputs.x)
        if not bool((gradient[~inside] == 0).all()):
            raise AssertionError(f"graph {g}: its output has a gradient in the features of other graphs")


def assert_matches_reference(
    function: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    inputs: Mapping[str, Tensor],
    tolerance: float | None = None,
) -> None:
    """Two implementations agree in their output and in the gradient of every floating-point input, named one by one."""
    results = {}
    for label, implementation in (("function", function), ("reference", reference)):
        fresh = {name: value.detach().clone() for name, value in inputs.items()}
        leaves = {name: value.requires_grad_() for name, value in fresh.items() if value.is_floating_point()}
        output = implementation(**fresh)
        weight = torch.linspace(-1.0, 1.0, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
        # A sum over no graphs has no history; adding zeros gives it one.
        loss = (output * weight).sum() + sum(leaf.sum() * 0 for leaf in leaves.values())
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        results[label] = {"output": output, **dict(zip(leaves, gradients, strict=True))}
    for name, expected in results["reference"].items():
        what = name if name == "output" else f"gradient of {name}"
        assert_close(results["function"][name], expected, what, tolerance)
