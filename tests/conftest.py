"""Fixtures shared by all tests."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

# Without a GPU the kernels run through Triton's interpreter, which must be chosen before Triton is first imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Test tensors are tiny: one thread per process is faster than any number, and two processes use two cores.
torch.set_num_threads(1)

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
