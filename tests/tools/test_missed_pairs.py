"""The check of a count notices pairs that were left out; the tool that counts would say if it did not."""

import pytest

from gssc.spectra import solver_choice
from tools import missed_pairs

SHORT = ["--graphs", "1", "--trials", "2", "--size", "150", "--quiet"]


def test_what_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert missed_pairs.main(SHORT) == 0
    assert capsys.readouterr().out.startswith("0 of 24 incomplete spectra passed")
    monkeypatch.setattr(solver_choice, "MISS_LIMIT", 1.0)
    assert missed_pairs.main(SHORT) == 1
    assert capsys.readouterr().out.startswith("24 of 24 incomplete spectra passed")
