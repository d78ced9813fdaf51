"""An attack on the numbers and symmetries of whole models on a device: generated graphs, the ugly ones among them.

    python -m tools.attack_device --device cuda --graphs 10000

Every graph goes through five models and both convolutions in float32, under autocast and in bfloat16, forward and
backward, beside the same in float64: models by PyTorch's ops, convolutions by their naive sums over pairs of nodes.
Then nodes are permuted, signs flipped, eigenspaces rotated, and graphs meet others in their batch. Prints the largest
error of each kind beside its limit; ends with status 1 where one lies above it.
"""

import argparse
import copy
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from gssc import GSSC, LaplacianSpectrum, model_inputs, ops, prepare
from gssc.environment import commit, hardware
from gssc.testing import permute_nodes, rotate_eigenspaces
from tools.errors import in_one_line

WIDTH, K = 24, 9
MODELS: tuple[dict[str, Any], ...] = (
    {"local": "gatedgcn", "level": "node"},
    {"local": "gine", "kernel": "shared", "degree_scaling": True, "out_proj": True},
    {"local": "gatedgcn", "selective": True},
    {"local": "gcn", "glob": "attention", "level": "node"},
    {"local": "gcn", "kernel": "shared", "selective": True, "level": "node"},
)
# Largest difference, relative to the largest entry (absolute below one), over all entries of all batches. A model in
# bfloat16 rounds its eigenvectors too, to three digits, and selection is of degree six in them. Gradients in float32 by
# PyTorch's own ops differ from those in float64 by up to 2e-2: they jump where the input of a ReLU changes its sign.
LIMITS = {
    "convolution, float32": 1e-4,
    "convolution, bfloat16": 5e-2,
    "output, float32": 1e-3,
    "gradients, float32": 5e-2,
    "output, autocast": 3e-1,
    "gradients, autocast": 5e-1,
    "output, bfloat16": 5e-1,
    "nodes permuted": 1e-3,
    "signs flipped": 1e-3,
    "eigenspaces rotated": 1e-3,
    "other graphs in the batch": 1e-3,
    "computed twice": 0.0,
}
Found = dict[str, Tensor]


def ugly_graphs(generator: torch.Generator) -> Iterator[Data]:
    """Graphs without end, of 0 to 40 nodes: half of families with equal eigenvalues, in parts or without edges.

    A quarter is weighted; some have loops and repeated edges.
    """

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    while True:
        n, kind = number(0, 40), number(0, 9)
        a = torch.zeros(n, n, dtype=torch.bool)
        if kind == 1:  # complete
            a[:] = True
        elif kind == 2:  # a star
            a[:1] = True
        elif kind == 3:  # a cycle, or a path
            around = torch.arange(n - number(0, 1)) if n else torch.arange(0)
            a[around, (around + 1) % max(n, 1)] = True
        elif kind == 4:  # parts that no edge joins, one of them complete
            a[: n // 3, : n // 3] = torch.rand(n // 3, n // 3, generator=generator) < 0.4
            a[n // 2 :, n // 2 :] = True
        elif kind > 4:  # at random, sparse to dense
            a = torch.rand(n, n, generator=generator) < (0.05, 0.1, 0.2, 0.4, 0.8)[kind - 5]
        a = (a | a.T).fill_diagonal_(False)
        edges = a.nonzero().T
        weight = torch.ones(n, n)
        if number(0, 3) == 0:
            weight = 0.1 + torch.rand(n, n, generator=generator)
        elif n and number(0, 9) == 0:
            edges = torch.cat([edges, edges[:, :3], edges[:, :3].flip(0), torch.zeros(2, 1, dtype=torch.long)], dim=1)
        x, attr = (torch.randn(rows, WIDTH, generator=generator) for rows in (n, edges.shape[1]))
        yield Data(x=x, edge_index=edges, edge_attr=attr, edge_weight=(weight + weight.T)[edges[0], edges[1]])


def gradients(function: Callable[..., Tensor], leaves: Found) -> Found:
    """Of a weighted sum of the output, which is returned with them; all detached, in float64. None is zero."""
    with torch.enable_grad():
        output = function()
    weight = torch.linspace(-1, 1, output.numel(), dtype=torch.float64, device=output.device).view_as(output)
    given = torch.autograd.grad((output.double() * weight).mean(), list(leaves.values()), materialize_grads=True)
    found = {name: gradient.double() for name, gradient in zip(leaves, given, strict=True)}
    return {"output": output.detach().double(), **found}


class Errors:
    """The largest error of every kind, and how many comparisons lie above its limit."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = defaultdict(float)
        self.above: Counter[str] = Counter()
        self.count: Counter[str] = Counter()

    def compare(self, kind: str, actual: Tensor, expected: Tensor) -> None:
        self.count[kind] += 1
        if expected.numel():
            scale = max(1.0, float(expected.abs().max()))
            error = float((actual.double() - expected.double()).abs().max()) / scale
            self.above[kind] += not error <= LIMITS[kind]  # so that NaN counts
            self.largest[kind] = max(self.largest[kind], error if error == error else float("inf"))

    def compare_gradients(self, kind: str, actual: Found, expected: Found) -> None:
        """All parameters as one vector: where a gradient vanishes, only rounding is left of it."""
        names = [name for name in expected if name != "output"]
        flat = [torch.cat([found[name].flatten() for name in names]) for found in (actual, expected)]
        scale = flat[1].abs().max().clamp(min=1e-12)
        self.compare(kind, flat[0] / scale, flat[1] / scale)

    def table(self) -> str:
        lines = [f"{'':28}{'largest':>10}{'limit':>9}{'compared':>10}{'above':>7}"]
        for kind, limit in LIMITS.items():
            row = f"{self.largest[kind]:>10.1e}{limit:>9.0e}{self.count[kind]:>10,}{self.above[kind]:>7}"
            lines.append(f"{kind:28}{row}")
        return "\n".join(lines)


def attack_convolutions(batch: Batch, errors: Errors, generator: torch.Generator) -> None:
    """Both ops on the spectra of a batch, with random gains: fused where the device can, against the naive sums."""
    device, nodes, count = batch.x.device, batch.num_nodes, batch.num_graphs

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    shared = {"x_o": batch.x, "x_s": random(nodes, WIDTH), "vectors": batch.eigvecs}
    plain = {**shared, "gains": random(count, K, WIDTH), "self_gains": random(count, K, WIDTH)}
    turns = {name: random(WIDTH, WIDTH) / WIDTH**0.5 for name in ("dv", "q", "k", "sq", "sk")}
    spectrum = {"phi": random(count, K, WIDTH) * batch.eigmask[..., None], "pair_gains": random(count, K, WIDTH)}
    for dtype, kind in ((torch.float32, "convolution, float32"), (torch.bfloat16, "convolution, bfloat16")):
        found = []
        for form, backend in ((dtype, "auto"), (torch.float64, "naive")):
            leaves = {name: value.to(dtype).to(form).requires_grad_() for name, value in plain.items()}
            found.append(gradients(lambda: ops.gssc_conv(**leaves, ptr=batch.ptr, backend=backend), leaves))  # noqa: B023
        for name, expected in found[1].items():
            errors.compare(kind, found[0][name], expected)
    found = []
    for form, backend in ((torch.float32, "auto"), (torch.float64, "naive")):
        leaves = {name: value.to(form).requires_grad_() for name, value in {**shared, **turns, **spectrum}.items()}
        inputs = {name: value for name, value in leaves.items() if name not in turns}
        weights = {name: leaves[name] for name in turns}
        call = {"x": leaves["x_o"], **inputs, "weights": weights, "ptr": batch.ptr, "backend": backend}
        found.append(gradients(lambda: ops.selective_gssc_conv(**call), leaves))  # noqa: B023
    for name, expected in found[1].items():
        errors.compare("convolution, float32", found[0][name], expected)


def attack_model(model: GSSC, variants: dict[str, tuple[Batch, Tensor]], errors: Errors) -> None:
    """A model on a batch and on its variants, each with the rows of the batch's output that its own must be."""
    batch = variants["itself"][0]
    wanted = copy.deepcopy(model).double()
    inputs = model_inputs(batch)
    exact = {name: value.double() if _is_float(value) else value for name, value in inputs.items()}
    for training in (False, True):  # in this order: training changes running statistics
        for module in (model, wanted):
            module.train(training)
        expected = gradients(lambda: wanted(**exact), dict(wanted.named_parameters()))
        actual = [gradients(lambda: model(**inputs), dict(model.named_parameters())) for _ in range(2)]
        with torch.autocast(batch.x.device.type, torch.bfloat16):
            cast = gradients(lambda: model(**inputs), dict(model.named_parameters()))
        errors.compare("output, float32", actual[0]["output"], expected["output"])
        errors.compare_gradients("gradients, float32", actual[0], expected)
        errors.compare("output, autocast", cast["output"], expected["output"])
        errors.compare_gradients("gradients, autocast", cast, expected)
        for name, value in actual[0].items():
            errors.compare("computed twice", actual[1][name], value)
        if not training:
            attack_symmetries(model, variants, actual[0]["output"], errors)
            rounded = {name: value.bfloat16() if _is_float(value) else value for name, value in inputs.items()}
            low = copy.deepcopy(model).bfloat16()(**rounded).detach()
            errors.compare("output, bfloat16", low, expected["output"])


@torch.no_grad()
def attack_symmetries(model: GSSC, variants: dict[str, tuple[Batch, Tensor]], output: Tensor, errors: Errors) -> None:
    """What a model in eval mode gives for the variants of a batch, beside its output for the batch itself."""
    batch = variants["itself"][0]
    for kind, (variant, graphs) in variants.items():
        if kind != "itself":
            expected = _rows(output, batch, variant, graphs, model.level)
            errors.compare(kind, model(**model_inputs(variant)), expected)


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _rows(output: Tensor, batch: Batch, variant: Batch, graphs: Tensor, level: str) -> Tensor:
    """Of the output for a batch, what its variant, some of the same graphs, must give."""
    return output[graphs] if level == "graph" else output[variant.origin + batch.ptr[graphs][variant.batch]]


def variants_of(graphs: list[Data], generator: torch.Generator) -> dict[str, tuple[Batch, Tensor]]:
    """The graphs as a batch; the same with nodes permuted, signs flipped, eigenspaces rotated; every third of them."""
    for graph in graphs:
        graph.origin = torch.arange(graph.num_nodes)
    batch = Batch.from_data_list(graphs)
    everything = torch.arange(len(graphs))
    order = (batch.batch + torch.rand(batch.num_nodes, generator=generator, dtype=torch.float64)).argsort().argsort()
    flipped = batch.clone()
    signs = torch.randint(2, batch.eigvals.shape, generator=generator) * 2 - 1
    flipped.eigvecs = batch.eigvecs * signs[batch.batch]
    third = everything[generator.initial_seed() % 3 :: 3].flip(0)
    return {
        "itself": (batch, everything),
        "nodes permuted": (permute_nodes(batch, order), everything),
        "signs flipped": (flipped, everything),
        "eigenspaces rotated": (rotate_eigenspaces(batch, generator), everything),
        "other graphs in the batch": (Batch.from_data_list([graphs[g] for g in third]), third),
    }


def randomised_norms(model: nn.Module, generator: torch.Generator) -> None:
    """Running statistics as training leaves them, not zeros and ones."""
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm1d)):
        norm.running_mean = torch.randn(norm.num_features, generator=generator) / 2
        norm.running_var = 0.5 + torch.rand(norm.num_features, generator=generator)


def attack(device: torch.device, count: int, batch_size: int = 250, seed: int = 0, progress: bool = True) -> Errors:
    """``count`` graphs through everything."""
    generator = torch.Generator().manual_seed(seed)
    source = ugly_graphs(generator)
    graphs = [next(source) for _ in range(count)]
    graphs = prepare(graphs, LaplacianSpectrum(K, weight_attr="edge_weight"), progress=progress)
    models = []
    for settings in MODELS:
        torch.manual_seed(seed)
        features: dict[str, Any] = {"node_features": WIDTH}
        if settings["local"] in ("gatedgcn", "gine"):
            features["edge_features"] = WIDTH
        model = GSSC(3, WIDTH, 3, **{"level": "graph"} | settings, **features)
        randomised_norms(model, generator)
        models.append(model.to(device))
    errors = Errors()
    for first in track(range(0, count, batch_size), "attack", disable=not progress):
        variants = variants_of(graphs[first : first + batch_size], generator)
        variants = {kind: (batch.to(device), rows.to(device)) for kind, (batch, rows) in variants.items()}
        attack_convolutions(variants["itself"][0], errors, generator)
        for model in models:
            attack_model(copy.deepcopy(model), variants, errors)
    return errors


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--graphs", type=int, default=10_000, help="how many")
    parser.add_argument("--batch", type=int, default=250, help="graphs of one batch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    errors = attack(options.device, options.graphs, options.batch, options.seed)
    print(f"{options.graphs:,} graphs, {len(MODELS)} models, {hardware(options.device.type)}, commit {commit()}")
    print(errors.table())
    print(f"{time.perf_counter() - start:.0f} s")
    if any(errors.above.values()):
        sys.exit(1)


if __name__ == "__main__":
    in_one_line(main)
