import sys

import pytest

from gssc.datasets import load_dataset


def test_without_ogb_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", None)
    with pytest.raises(ValueError, match=r"molhiv: expected the package ogb \(pip install 'gssc\[ogb\]'\)"):
        load_dataset("molhiv", tmp_path)
