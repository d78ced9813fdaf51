"""The results file as pictures, against the number of nodes."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Measured, lines_by_variant, published_models, read_results
from gssc.files import write_atomic

Lines = Mapping[str, Sequence[tuple[int, float]]]


def draw(results: Path, folder: Path) -> list[Path]:
    """Write ``bench-conv``, ``-models``, ``-spectra`` and ``-cost`` as SVG, as far as there are rows for them."""
    import matplotlib as mpl

    rows = read_results(results)
    figures = {"conv": conv_figure(rows), "models": models_figure(rows), "spectra": spectra_figure(rows)}
    figures["cost"] = cost_figure(rows)
    paths = []
    # The same bytes every time.
    with mpl.rc_context({"svg.hashsalt": "gssc", "svg.fonttype": "path"}):
        for name, figure in figures.items():
            if figure is not None:
                picture = io.BytesIO()
                figure.savefig(picture, format="svg", dpi=150, metadata={"Date": None, "Creator": None})
                paths.append(folder / f"bench-{name}.svg")
                write_atomic(paths[-1], picture.getvalue())
    return paths


def conv_rows(rows: Sequence[Measured]) -> list[Measured]:
    """The convolution alone on one graph, forward and backward."""
    return [row for row in rows if row.benchmark == "conv" or row.workload.startswith("one graph of ")]


def model_rows(rows: Sequence[Measured]) -> list[Measured]:
    """Whole models on a GPU: the dense graphs at which others were measured."""
    return [row for row in rows if row.benchmark == "kernels" and row.workload.endswith(" edges") and row.nodes]


def sparse_rows(rows: Sequence[Measured]) -> list[Measured]:
    """Whole models on a GPU: graphs of constant degree."""
    return [row for row in rows if row.benchmark == "kernels" and ", degree " in row.workload and row.nodes]


def conv_figure(rows: Sequence[Measured]) -> Any:
    """Time of the convolution against n, a panel per device, a line per variant."""
    alone = conv_rows(rows)
    devices = list(dict.fromkeys(row.device for row in alone))
    if not devices:
        return None
    figure, axes = _panels(len(devices))
    for axis, device in zip(axes, devices, strict=True):
        _lines(axis, lines_by_variant([row for row in alone if row.device == device], "p50"))
        _dress(axis, f"convolution, forward + backward, {device}", "milliseconds")
    return figure


def models_figure(rows: Sequence[Measured]) -> Any:
    """Time and memory of whole models against n, beside published figures; and of graphs of degree 10."""
    dense, sparse = model_rows(rows), sparse_rows(rows)
    if not dense and not sparse:
        return None
    others = published_models()
    figure, axes = _panels(3)
    for axis, value, title, unit in (
        (axes[0], "p50", "whole model, training", "milliseconds"),
        (axes[1], "peak_mb", "whole model, training", "peak memory, MB"),
    ):
        _lines(axis, _training(dense, value))
        _lines(axis, {f"{name} (published)": line for name, line in _training(others, value).items()}, "--s", first=6)
        _dress(axis, title, unit)
    _lines(axes[2], lines_by_variant(sparse, "p50"))
    _dress(axes[2], "whole model, constant degree", "milliseconds")
    return figure


def spectra_figure(rows: Sequence[Measured]) -> Any:
    """Time of 32 eigenpairs against n, a panel for each kind of graph and device."""
    spectra = [row for row in rows if row.benchmark == "spectra_large" and not of_study(row)]
    kinds = list(dict.fromkeys((row.device, row.workload.split()[0]) for row in spectra if row.good))
    if not kinds:
        return None
    figure, axes = _panels(len(kinds))
    for axis, (device, graph) in zip(axes, sorted(kinds), strict=True):
        mine = [row for row in spectra if row.device == device and row.workload.split()[0] == graph]
        _lines(axis, {name: [(n, t / 1e3) for n, t in line] for name, line in lines_by_variant(mine, "p50").items()})
        _dress(axis, f"32 eigenpairs, {graph} graph, {device}", "seconds")
    return figure


def of_study(row: Measured) -> bool:
    """Whether a row of spectra belongs to the cost study: graphs as dense as the paper's."""
    return row.workload.startswith("paper ")


def study_rows(rows: Sequence[Measured]) -> list[Measured]:
    """The models of the cost study, on a GPU where one was measured."""
    study = [row for row in rows if row.benchmark == "cost-models"]
    return [row for row in study if row.gpu] or study


def cost_figure(rows: Sequence[Measured]) -> Any:
    """The cost study against nodes: training, inference, memory of every global part, and preprocessing."""
    study, spectra = study_rows(rows), [row for row in rows if row.benchmark == "spectra_large" and of_study(row)]
    if not study and not spectra:
        return None
    devices = list(dict.fromkeys(row.device for row in spectra))
    figure, axes = _panels(4 + len(devices))
    panels = (("training", "p50", "launched"), ("training", "p50", "replayed"), ("inference", "p50", "launched"))
    for axis, (kind, value, how) in zip(axes, (*panels, ("training", "peak_mb", "launched")), strict=False):
        shown = [row for row in study if row.workload.endswith(kind) and row.variant.endswith(how)]
        lines = lines_by_variant(shown, value)
        _lines(axis, {name.partition(", ")[0]: line for name, line in lines.items()})
        _dress(axis, f"{kind}, {how}", "milliseconds" if value == "p50" else "peak memory, MB")
    for axis, device in zip(axes[4:], devices, strict=True):
        mine = lines_by_variant([row for row in spectra if row.device == device], "p50")
        _lines(axis, {name: [(n, t / 1e3) for n, t in line] for name, line in mine.items()})
        _dress(axis, f"preprocessing, {device}", "seconds")
    return figure


def _training(rows: Sequence[Measured], value: str) -> dict[str, Sequence[tuple[int, float]]]:
    lines = lines_by_variant([row for row in rows if ", training" in row.variant], value)
    return {name.replace(", training", ""): line for name, line in lines.items()}


def _panels(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    across = min(count, 3)
    down = -(-count // across)
    figure = Figure(figsize=(4.6 * across, 3.7 * down), facecolor="white", layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.axis("off")
    return figure, axes[:count]


def _lines(axis: Any, lines: Lines, style: str = "-o", first: int = 0) -> None:
    for number, (name, points) in enumerate(lines.items(), start=first):
        axis.loglog(
            *zip(*points, strict=True), style, color=f"C{number % 10}", label=name, markersize=3.5, linewidth=1.2
        )


def _dress(axis: Any, title: str, unit: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("nodes")
    axis.set_ylabel(unit)
    axis.grid(visible=True, which="major", linewidth=0.4, alpha=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.lines:
        axis.legend(fontsize=6.5, frameon=False)
