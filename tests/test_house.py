"""The house: the method stays readable, every submodule can be reached, and a step goes through few files."""

import ast
import importlib
import pkgutil
import types
from pathlib import Path

import pytest

import gssc
from benchmarks.step_calls import calls_of, passes

ROOT = Path(gssc.__file__).parent
MODULES = sorted(module.name for module in pkgutil.walk_packages(gssc.__path__, "gssc."))


def function(path: str, owner: str, name: str) -> ast.FunctionDef:
    (classes,) = [node for node in ast.parse((ROOT / path).read_text()).body if getattr(node, "name", "") == owner]
    return next(node for node in classes.body if isinstance(node, ast.FunctionDef) and node.name == name)


@pytest.mark.parametrize(
    ("path", "owner", "most"),
    [("nn/gssconv.py", "GSSConv", 25), ("nn/layer.py", "GSSCLayer", 40), ("model.py", "GSSC", 50)],
)
def test_a_forward_reads_like_its_equation(path, owner, most):
    forward = function(path, owner, "forward")
    assert ast.get_docstring(forward)
    body = forward.body[1:]
    assert body[-1].end_lineno - body[0].lineno + 1 <= most


@pytest.mark.parametrize(
    "path", sorted(path.relative_to(ROOT) for path in [*ROOT.glob("nn/*.py"), ROOT / "model.py"]), ids=str
)
def test_modules_choose_no_backend(path):
    names = {node.id for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.Name)}
    assert not names & {"can_fuse", "fits", "is_plain_cpu", "plain_linears", "backend", "triton"}


@pytest.mark.parametrize("name", [name for name in MODULES if "kernels" not in name and name != "gssc.__main__"])
def test_no_submodule_is_hidden_by_a_name_of_its_package(name):
    importlib.import_module(name)
    parent, _, child = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(parent), child), types.ModuleType)


def test_one_step_enters_few_files_and_functions():
    model, training = passes().values()
    counted = []
    for run in (model, training):
        run()
        calls = calls_of(run)
        counted.append((len({file for file, _ in calls}), len(calls), sum(calls.values())))
    files, functions, calls_made = counted[0]
    assert files <= 14
    assert functions <= 42
    assert calls_made <= 450
    assert counted[1][0] <= 20
