"""What tests on a GPU share."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def _set_mode(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls the mode a prototype
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the GPU raises."""
    try:
        _set_mode("error")
        yield
    finally:
        _set_mode("default")
