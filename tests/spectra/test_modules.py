"""Names of a package do not hide its submodules, and spectra stand on checks and files alone."""

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import gssc.spectra


@pytest.mark.parametrize("package", ["gssc.spectra", "gssc.explain"])
def test_no_name_of_the_package_hides_a_submodule(package: str) -> None:
    parent = importlib.import_module(package)
    for found in pkgutil.iter_modules(parent.__path__):
        if found.name != "product_kernels":  # needs Triton
            importlib.import_module(f"{package}.{found.name}")
            assert isinstance(getattr(parent, found.name), ModuleType), found.name


def test_spectra_import_checks_files_and_themselves() -> None:
    for path in Path(gssc.spectra.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("gssc"):
                assert node.module in ("gssc.checks", "gssc.files") or node.module.startswith("gssc.spectra"), path.name
