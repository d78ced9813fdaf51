"""The wheel builds, installs into an empty environment with its declared dependencies alone, and works there."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
USE = """
import torch
from torch_geometric.data import Data
import gssc, gssc.testing, gssc.ops, gssc.datasets
path = gssc.LaplacianSpectrum(k=3)(Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3))
print(gssc.GSSC(1, 8, 1)(**gssc.model_inputs(path)).shape, gssc.__version__)
"""


@pytest.mark.skipif(not (ROOT / ".venv" / "ready").exists(), reason="no package index, or make would have used it")
def test_wheel_in_an_empty_environment(tmp_path):
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("gssc_pyg-")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "examples/", "benchmarks/", "tools/")) for name in names)
    assert {"gssc/py.typed", "gssc/pretrained_files/README.md", "gssc/recipe_files/zinc-12k.yaml"} <= set(names)
    assert {f"gssc/templates/{path.name}" for path in (ROOT / "gssc/templates").iterdir()} <= set(names)
    manifests = [path.parent.name for path in (ROOT / "pretrained").glob("*/manifest.json")]
    assert all(f"gssc/pretrained_files/{name}/model.safetensors.xz" in names for name in manifests)

    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    # The version of torch is pinned to the one tested with, so that the resolver does not fetch a CUDA build.
    pin = f"torch=={torch.__version__.split('+')[0]}"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-compile", pin, str(wheel)], check=True)
    used = subprocess.run([python, "-c", USE], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert used.stdout.startswith("torch.Size([1, 1])")
    gssc = python.parent / "gssc"
    version = subprocess.run([gssc, "--version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    stated = "from importlib.metadata import version; print('gssc-pyg', version('gssc-pyg'))"
    assert version == subprocess.run([python, "-c", stated], check=True, capture_output=True, text=True).stdout
