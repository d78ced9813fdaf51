"""What a run depends on besides its recipe: versions, commit, hardware."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from gssc.distribution import VERSION

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "safetensors", "torchmetrics", "triton")


def describe(device: torch.device) -> dict[str, Any]:
    """Versions, commit, hardware, command and date, as plain values."""
    return {
        "command": _command(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            "gssc": VERSION,
            **{name: _version(name) for name in PACKAGES},
        },
        "hardware": {
            "device": hardware(device.type),
            "cpu": hardware("cpu"),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "system": platform.platform(),
        },
    }


def hardware(device: str = "cpu") -> str:
    """The name of the processor or of the GPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the checkout that runs, with ``+`` where the package or its benchmarks differ from it.

    Where the code was copied without its history, $GSSC_COMMIT says it; otherwise it is unknown.
    """
    if stated := os.environ.get("GSSC_COMMIT"):
        return stated
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return "unknown"
    try:
        head = _git(folder, "rev-parse", "--short", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--", "gssc", "recipes", "benchmarks/*.py")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head + ("+" if changed else "")


def _command() -> str:
    """What was typed; a program that is not ours is named."""
    program = Path(sys.argv[0])
    ours = program.stem == "gssc" or program.parts[-2:] == ("gssc", "__main__.py")
    return shlex.join([*(["gssc"] if ours else ["python", program.name]), *sys.argv[1:]]).removesuffix(" ''")


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _version(name: str) -> str:
    if name == "torch":
        return str(torch.__version__)  # says which build it is, which the metadata may not
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
