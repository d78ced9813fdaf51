"""Compile every Triton kernel for a GPU that is not there.

    python -m tools.compile_kernels [--capability 90]

Tests without a GPU run the kernels in Triton's interpreter, which takes more than its compiler does. Here models of all
kinds run a step on the CPU in which a launch is a compilation and nothing else; what they compute means nothing. To try
another version of Triton: ``pip install --no-deps --target DIR triton==3.6.0`` and ``PYTHONPATH=DIR:.``
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import gssc
from benchmarks.graphs import zinc_like
from benchmarks.training import ABOUT
from gssc.datasets.specs import SPECS
from gssc.molecules.data import molecule_data
from gssc.molecules.model import MoleculeModel
from gssc.molecules.workspace import Workspace
from gssc.ops.launch import launch
from gssc.recipes import find_recipe
from gssc.train import build_model
from gssc.train.build import build_store

SHARED_MEMORY = 232_448  # bytes of a Hopper GPU's block
SMALL = {"phi_channels": 32, "kernel": "shared", "degree_scaling": True, "out_proj": True}
DROPOUTS = {"dropout_local": 0.1, "dropout_global": 0.5, "dropout_ffn": 0.1}
MODELS: tuple[dict[str, Any], ...] = (
    {"channels": 96, "level": "node"},
    {"channels": 64, "local": "gine", **SMALL, **DROPOUTS},
    {"channels": 36, "layers": 2, "level": "node", "jumping_knowledge": True, **SMALL, **DROPOUTS},
    {"channels": 32, "selective": True},
    {"channels": 96, "local": "gcn", "glob": "mamba"},
    {"channels": 96, "local": "gcn", "glob": "performer"},
    {"channels": 16, "local": "gcn", "diagonal_channels": 8, "pool": "sum"},
)


class AbsentGpu:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class Compiler:
    """Stands for ``launch``; ``kernels`` has what was compiled, ``failures`` what was not."""

    def __init__(self) -> None:
        self.kernels: set[tuple[str, str]] = set()
        self.failures: dict[str, str] = {}

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], *tensors: Any, numbers: tuple[Any, ...] = (), **constants: Any
    ) -> None:
        try:
            compiled = kernel.run(*tensors, *numbers, grid=grid, warmup=True, **constants)
        except Exception as error:  # whatever the compiler raises
            self.failures.setdefault(kernel.__name__, str(error).strip().splitlines()[-1])
            return
        self.kernels.add((kernel.__name__, compiled.hash))
        if compiled.metadata.shared > SHARED_MEMORY:
            self.failures.setdefault(kernel.__name__, f"{compiled.metadata.shared:,} bytes of shared memory")


def pretend(compiler: Compiler) -> None:
    """From now on tensors are said to be on a GPU, kernels are taken where they can be, and launches compile."""
    for name, module in list(sys.modules.items()):
        if name.startswith("gssc"):
            replaced: dict[str, Callable[..., Any]] = {"can_fuse": lambda *_: True, "multiprocessors": lambda _: 132}
            if getattr(module, "launch", None) is launch:
                replaced["launch"] = compiler
            for attribute, function in replaced.items():
                if hasattr(module, attribute):
                    setattr(module, attribute, function)
    torch.Tensor.is_cuda = True


def batch(nodes: int, graphs: int, frequencies: int = 16) -> dict[str, Tensor]:
    """Random graphs with features; also eigenvectors are random."""
    total, edges = nodes * graphs, 3 * nodes * graphs
    shift = torch.arange(graphs).repeat_interleave(3 * nodes) * nodes
    return {
        "x": torch.randn(total, 8),
        "edge_index": torch.randint(nodes, (2, edges)) + shift,
        "edge_attr": torch.randn(edges, 8),
        "batch": torch.arange(graphs).repeat_interleave(nodes),
        "eigvals": torch.rand(graphs, frequencies),
        "eigvecs": torch.randn(total, frequencies),
        "eigmask": torch.ones(graphs, frequencies, dtype=torch.bool),
    }


def compile_models() -> None:
    """Steps and inference of models, for many small graphs and for few large ones."""
    for settings in MODELS:
        for nodes, graphs in ((20, 8), (700, 4)):
            for training in (True, False):
                model = gssc.GSSC(1, **({"layers": 1, "node_features": 8, "edge_features": 8} | settings))
                model.train(training)
                with torch.set_grad_enabled(training):
                    out = model(**batch(nodes, graphs))
                    if training:
                        out.square().mean().backward()


class CompiledMolecules(MoleculeModel):
    """The kernels for small graphs, compiled where they would be listed to be launched."""

    compiler: Compiler

    def _launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any) -> Any:
        warps = self.warps.get(kernel.__name__.removesuffix("_kernel"), 4)
        self.compiler(kernel, grid, *arguments, num_warps=warps)


def compile_molecules(compiler: Compiler) -> None:
    """A step of the zinc-12k recipe, in both precisions."""
    recipe, task = find_recipe("zinc-12k"), SPECS["zinc-12k"].task
    store = build_store(zinc_like(32), recipe, "graph", torch.device("cpu"), None)
    model = build_model(recipe, ABOUT)
    for precision in ("tf32", "tf32x3"):
        fused = CompiledMolecules([model], precision)
        fused.compiler = compiler
        work = Workspace(fused, molecule_data(store, model, task), 16, 2, True)
        fused.forward(work)
        fused.backward(work)


def main() -> None:
    """Compile, and say what could not be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--capability", type=int, default=90, help="of the GPU: 80, 90, 100")
    options = parser.parse_args()
    driver.set_active(AbsentGpu(options.capability))
    compiler, start = Compiler(), time.perf_counter()
    compile_molecules(compiler)
    pretend(compiler)
    compile_models()
    seconds = time.perf_counter() - start
    print(f"Triton {triton.__version__}, sm_{options.capability}: {len(compiler.kernels)} kernels in {seconds:.0f} s")
    for name, reason in compiler.failures.items():
        print(f"{name}: {reason}")
    sys.exit(1 if compiler.failures else 0)


if __name__ == "__main__":
    main()
