"""The attack on spectra finds nothing in its short form, and would find what it looks for."""

import pytest

from gssc.spectra import truncation
from gssc.train.evaluate import default_dtype
from tools import attack_spectra

SHORT = ["--prepare", "200", "--transform", "100", "--symmetry", "60", "--seed", "7", "--quiet"]


def test_nothing_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert attack_spectra.main(SHORT) == 0
    assert "0 wrong, 0 crash, 0 hang, 0 disagreement, 0 symmetry" in capsys.readouterr().out


def test_a_cut_at_any_gap_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(truncation, "DENSE_GAP", 0.0)
    monkeypatch.setattr(truncation, "RELATIVE_GAP", 0.0)
    assert attack_spectra.main(SHORT) == 1
    found = capsys.readouterr().out
    assert "wrong (seed 7, number" in found
    assert "symmetry (seed 7, number" in found


def test_a_raw_cut_among_weights_of_any_size_is_not_found_again() -> None:
    """Until zero modes had one order, the transform and `prepare` kept other modes of six of these graphs."""
    found: list[str] = []
    with default_dtype("float64"):
        attack_spectra.Attack(1, found.append).transform(104)
    assert not found


def test_a_call_that_takes_too_long_is_found() -> None:
    def forever() -> None:
        while True:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attack_spectra, "LIMIT", 1)
        assert attack_spectra.attempt(forever) == ("hang", "more than 1 s")
