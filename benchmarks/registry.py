"""What ``python -m benchmarks`` can run: each workload is a module of this folder with its arguments."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gssc.checks import check_choice

ROOT = Path(__file__).resolve().parents[1]

# Large buffers stay with the process: otherwise glibc hands them back after every call, and page faults are measured.
KEEP_BUFFERS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184"}


@dataclass(frozen=True)
class Workload:
    """A benchmark that runs in a process of its own.

    Args:
        name: What to call it on the command line.
        measures: What it measures, against what, and what is checked first.
        module: Run as ``python -m module``; it checks its results, times them and appends rows to ``--out``.
        needs: ``"gpu"``, ``"cpu"`` (whatever else is there), or ``"any"``: it is told ``--device``.
        minutes: About how long it takes.
        arguments: Given to the module.
        seconds: Whether the module takes ``--seconds``, the time of each measurement.
        environment: Variables of its process.
    """

    name: str
    measures: str
    module: str
    needs: str
    minutes: float
    arguments: tuple[str, ...] = ()
    seconds: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


WORKLOADS = (
    Workload(
        "conv",
        "The convolution forward and backward on a CPU (C = 64, K = 32): against explicit z tensors, with which it "
        "must agree, PyTorch attention and PyG's Performer; and how its time grows with n, also with selection.",
        "benchmarks.conv",
        "cpu",
        1,
        seconds=True,
        environment=KEEP_BUFFERS,
    ),
    Workload(
        "spectra-small",
        "Spectra, random walks and cache of 12,000 molecules on a CPU, in batches: against a NumPy loop and the "
        "transforms graph by graph, with which it must agree.",
        "benchmarks.spectra_small",
        "cpu",
        1,
        environment={"OPENBLAS_NUM_THREADS": "1", **KEEP_BUFFERS},
    ),
    Workload(
        "training",
        "Training steps of the zinc-12k recipe on a CPU: against the same model behind PyG's DataLoader and with "
        "explicit z tensors, with which it must agree.",
        "benchmarks.training",
        "cpu",
        2,
        seconds=True,
    ),
    Workload(
        "spectra-large",
        "32 eigenpairs of one large Laplacian, certified: against ARPACK on a CPU and torch.lobpcg; residuals and "
        "missed eigenvalues of all are in the rows.",
        "benchmarks.spectra_large",
        "any",
        6,
        ("--limit", "40"),
    ),
    Workload(
        "spectra-product",
        "One step of the Chebyshev filter on a GPU, as one kernel: against torch.sparse, with which it must agree.",
        "benchmarks.spectra_product",
        "gpu",
        1,
    ),
    Workload(
        "kernels-conv",
        "The convolution forward and backward on a GPU, 1,000 to 1,000,000 nodes and batches of molecules: fused, "
        "eager, explicit z tensors, PyTorch attention (float32, and flash in bf16), PyG's Performer. Every form of "
        "ours is judged by float64 first.",
        "benchmarks.kernels",
        "gpu",
        2,
    ),
    Workload(
        "kernels-models",
        "Whole models (4 layers, width 96) on a GPU, training and inference, the sizes at which the authors' code was "
        "measured: against softmax attention; judged by float64 first.",
        "benchmarks.kernels",
        "gpu",
        2,
        ("--models",),
    ),
    Workload(
        "kernels-growth",
        "The same model from 100,000 to 10,000,000 nodes of degree 10, in bf16 with layers recomputed: the slope of "
        "log time against log(n + E), and peak memory. Needs about 110 GB of GPU memory for the largest.",
        "benchmarks.kernels",
        "gpu",
        2,
        ("--growth",),
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"},  # tensors of 19 GB come and go
    ),
    Workload(
        "cost",
        "The paper's cost study: every global part that can be trained here, training and inference from 32 molecules "
        "to 60,000 nodes, launched and replayed, with peak memory; and preprocessing: ours, torch.lobpcg, a full "
        "eigendecomposition, RRWP, expanders.",
        "benchmarks.cost_study",
        "any",
        5,
        seconds=True,
    ),
    Workload(
        "molecules",
        "Training steps of the zinc-12k recipe on a GPU by the kernels for small graphs, one to five seeds together; "
        "judged by float64 and by the model itself first.",
        "benchmarks.molecule_training",
        "gpu",
        3,
    ),
)


def find_workloads(names: list[str]) -> list[Workload]:
    """Workloads by name; all of them where none is named."""
    by_name = {workload.name: workload for workload in WORKLOADS}
    for name in names:
        check_choice("workload", name, by_name)
    return [by_name[name] for name in names] if names else list(WORKLOADS)


@dataclass(frozen=True)
class Outcome:
    """What became of a workload: ``"done"``, ``"skipped"`` or ``"failed"``, and why."""

    workload: str
    status: str
    reason: str = ""


def command(workload: Workload, device: str, out: Path, seconds: float | None) -> list[str]:
    """The command line of a workload's process."""
    words = [sys.executable, "-m", workload.module, *workload.arguments, "--out", str(out)]
    if workload.needs == "any":
        words += ["--device", device]
    if workload.seconds and seconds is not None:
        words += ["--seconds", str(seconds)]
    return words


def run_workloads(
    workloads: Sequence[Workload], device: str, out: Path, seconds: float | None, say: Callable[[str], None]
) -> list[Outcome]:
    """Run workloads; what needs another device is skipped, what fails or is wrong does not stop the others.

    A module checks its results before it times anything, and ends with one line and a code that is not zero where they
    are wrong: then there is no row of it.
    """
    outcomes = []
    for workload in workloads:
        if workload.needs == "gpu" and device == "cpu":
            outcomes.append(Outcome(workload.name, "skipped", "it needs a GPU"))
            say(f"{workload.name}: skipped, it needs a GPU")
            continue
        say(f"{workload.name}: about {workload.minutes:g} min")
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**workload.environment, **os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            command(workload, device, out.resolve(), seconds), env=environment, stderr=subprocess.PIPE, text=True
        )
        if done.returncode == 0:
            outcomes.append(Outcome(workload.name, "done"))
            continue
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        outcomes.append(Outcome(workload.name, "failed", lines[-1]))
        say(f"{workload.name}: failed: {lines[-1]}")
    return outcomes
