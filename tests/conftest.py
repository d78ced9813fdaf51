"""Fixtures shared by all tests."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

# Without a GPU the kernels run through Triton's interpreter, which must be chosen before Triton is first imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# What CUDA's matrix products need to be deterministic, which some tests ask of everything.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

# Test tensors are tiny: one thread per process is faster than any number, and two processes use two cores.
torch.set_num_threads(1)

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # few tests need it, and a GPU machine may not have it
    pass
else:
    settings.register_profile(
        "gssc", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("gssc")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def float64() -> Iterator[None]:
    """float64 as the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Uninitialised memory is NaN, so that an element that nobody wrote fails the test."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``pretend_gpu(on, *ops)``: let the kernels of these ops stand for what they compute here too, or not."""

    from gssc.ops import triton_support  # after the choice of the interpreter

    def switch(on: bool, *ops: Any) -> None:
        for module in ops:
            asks = module if hasattr(module, "can_fuse") else triton_support
            monkeypatch.setattr(asks, "can_fuse", lambda *tensors: on)
        if not torch.cuda.is_available():
            torch.overrides.get_testing_overrides()  # Dynamo asks for it at its first look, which must not see this
            monkeypatch.setattr(torch.Tensor, "is_cuda", on)

    return switch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Commands of the README take a minute or two each: first, so that the other process is busy meanwhile."""
    items.sort(key=lambda item: "test_command" not in item.nodeid)
