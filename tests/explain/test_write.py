import csv
import io

import numpy as np
import torch

from gssc.explain.jacobian import by_distance
from gssc.explain.write import kernel_csv, pairs_csv, reaches_csv

HOPS = np.array([[0.0, 1.0, 1.0, np.inf]])
INFLUENCE = np.array([[4.0, 1.0, 3.0, 0.5]])


def test_mean_and_spread_by_distance():
    reach = by_distance("ours", INFLUENCE, HOPS)
    assert reach.distance.tolist() == [0.0, 1.0, np.inf]
    assert reach.pairs.tolist() == [1, 2, 1]
    assert reach.mean.tolist() == [4.0, 2.0, 0.5]
    assert np.allclose(reach.p10, [4.0, 1.2, 0.5])
    assert np.allclose(reach.p90, [4.0, 2.8, 0.5])


def test_tables_hold_the_numbers():
    rows = read(reaches_csv([by_distance("ours", INFLUENCE, HOPS)]))
    assert rows[1] == {
        "model": "ours",
        "distance": "1",
        "pairs": "2",
        "mean": "2",
        "p10": "1.2",
        "p50": "2",
        "p90": "2.8",
    }
    assert rows[2]["distance"] == ""
    pairs = read(pairs_csv({"ours": INFLUENCE, "other": 2 * INFLUENCE}, [7], HOPS))
    assert [row["other"] for row in pairs] == ["8", "2", "6", "1"]
    assert {row["u"] for row in pairs} == {"7"}
    kernel = read(kernel_csv({3: (torch.arange(8.0).reshape(4, 2), torch.tensor([9.0, 9.5]))}, 0, HOPS[0]))
    assert [row["c1"] for row in kernel] == ["1", "3", "5", "7", "9.5"]
    assert [row["kind"] for row in kernel] == 4 * ["kernel"] + ["self"]


def read(text):
    return list(csv.DictReader(io.StringIO(text)))
