import math

import pytest
import torch
from graphs import edgeless, random_graph

from gssc.nn import LocalPNA
from gssc.testing import assert_close

HISTOGRAM = [1, 4, 3, 2]


def test_formula_node_by_node(float64):
    conv, data = LocalPNA(3, HISTOGRAM, edge_features=True), random_graph(7)
    x, e = torch.randn(7, 3), torch.randn(data.num_edges, 3)
    mean_log = sum(n * math.log(d + 1) for d, n in enumerate(HISTOGRAM)) / sum(HISTOGRAM)
    out = conv(x, data.edge_index, e)
    for i in range(7):
        rows = []
        for number, (source, target) in enumerate(data.edge_index.T.tolist()):
            if target == i:
                rows.append(conv.pre_nns[0](torch.cat([x[i], x[source], conv.edge_encoder(e[number])])))
        aggregated = torch.zeros(12)
        if rows:
            messages = torch.stack(rows)
            parts = [messages.mean(0), messages.amin(0), messages.amax(0), messages.std(0, correction=0)]
            aggregated = torch.cat(parts)
        scale = math.log(len(rows) + 1) / mean_log
        scales = [1.0, scale, 1 / scale if rows else 0.0]
        hidden = torch.cat([x[i], *(aggregated * s for s in scales)])
        # PyG takes the mean degree in float32, and the deviation from a difference of squares.
        assert_close(out[i], conv.lin(conv.post_nns[0](hidden)), tolerance=1e-6)


@pytest.mark.parametrize("edge_features", [True, False])
def test_no_edges_here_and_in_training(edge_features):
    conv = LocalPNA(4, [5], edge_features)
    edge_attr = (torch.zeros(0, 4),) if edge_features else ()
    out = conv(torch.randn(3, 4), edgeless(3).edge_index, *edge_attr)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in conv.parameters() if p.grad is not None)


@pytest.mark.parametrize("histogram", [[], [0, 0], [1, -1], [[1, 2]]])
def test_bad_histograms(histogram):
    with pytest.raises(ValueError, match="degree_histogram: expected how many nodes have 0, 1, 2, … neighbours, got "):
        LocalPNA(4, histogram)
