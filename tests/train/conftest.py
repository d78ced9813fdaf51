"""Fixtures of the tests of training."""

import pytest

from gssc.train import stopping


@pytest.fixture(autouse=True)
def _checkpoints_as_often_as_asked(monkeypatch) -> None:
    """Epochs of tests take milliseconds."""
    monkeypatch.setattr(stopping, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
