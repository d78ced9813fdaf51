import csv
import time

import torch

from benchmarks.harness import FIELDS, append, timed


def test_percentiles_are_ordered_and_in_milliseconds():
    p20, p50, p80 = timed(lambda: time.sleep(0.002), seconds=0.02)
    assert 2.0 <= p20 <= p50 <= p80


def test_rows_are_appended_with_their_circumstances(tmp_path):
    path = tmp_path / "new" / "results.csv"
    append(path, [{"benchmark": "a", "p50_ms": 1}])
    append(path, [{"benchmark": "b", "p50_ms": 2}])
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["benchmark"] for row in rows] == ["a", "b"]
    assert tuple(rows[0]) == FIELDS
    assert rows[0]["torch"] == torch.__version__
    assert rows[0]["date"]
