import numpy as np
from graphs import cycle

from gssc.explain.draw import influence_figure, kernel_figure, rendered
from gssc.explain.jacobian import by_distance
from gssc.explain.layout import layout


def test_a_kernel_has_its_own_scale_and_marks_the_node():
    graph = cycle(6)
    values = np.array([50.0, 1.0, -2.0, 0.5, 0.0, 1.0])
    panels = [(f"layer {number}", values) for number in range(5)]
    figure = kernel_figure(layout(graph), graph.edge_index.numpy(), panels, 0, "a title")
    shown = [axis for axis in figure.axes if axis.get_title().startswith("layer")]
    assert len(shown) == 5
    assert "at the node itself 50" in shown[0].get_title()
    edges, nodes, ring = shown[0].collections
    assert len(edges.get_segments()) == 6
    assert nodes.get_clim() == (-2.0, 2.0)  # not that of the node itself
    assert np.allclose(ring.get_offsets(), layout(graph)[[0]])
    assert figure.get_suptitle() == "a title"


def test_a_graph_of_one_node_and_a_kernel_of_zeros():
    figure = kernel_figure(np.zeros((1, 2)), np.zeros((2, 0), dtype=int), [("layer 0", np.zeros(1))], 0, "t")
    assert rendered(figure, "x")["x.svg"].rstrip().endswith(b"</svg>")


def test_zero_influence_is_drawn_below_the_axis_of_the_rest():
    hops = np.array([[0.0, 1.0, 2.0, np.inf]])
    ours = by_distance("ours", np.array([[4.0, 2.0, 1.0, 1e-12]]), hops)
    without = by_distance("without", np.array([[4.0, 2.0, 0.0, 0.0]]), hops)
    figure = influence_figure([ours, without], "t", "mean over 1 node")
    (axis,) = figure.axes
    assert axis.get_yscale() == "log"
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["ours"].get_ydata().tolist() == [4.0, 2.0, 1.0]
    assert lines["without"].get_xdata().tolist() == [0.0, 1.0]
    hollow = [line for line in axis.lines if line.get_marker() == "v"]
    assert [line.get_xdata().tolist() for line in hollow] == [[3.0], [2.0, 3.0]]
    assert max(line.get_ydata().max() for line in hollow) < 1.0
    assert "no path" in axis.texts[0].get_text()
    files = rendered(figure, "x")
    assert files["x.png"].startswith(b"\x89PNG")
    assert b"<script" not in files["x.svg"]
    assert rendered(figure, "x") == files
