"""The results file as pictures, against the number of nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gssc.bench.results import Measured, lines_by_variant, published_models, read_results

Lines = Mapping[str, Sequence[tuple[int, float]]]


def draw(results: Path, folder: Path) -> list[Path]:
    """Write ``bench-conv``, ``bench-models`` and ``bench-spectra`` as SVG, as far as there are rows for them."""
    from gssc.explain.draw import rendered
    from gssc.files import write_files
    from gssc.report.svg import need_matplotlib

    need_matplotlib("gssc bench --plot")
    rows = read_results(results)
    figures = {"conv": conv_figure(rows), "models": models_figure(rows), "spectra": spectra_figure(rows)}
    contents = {
        f"bench-{name}.svg": rendered(figure, (".svg",))[".svg"]
        for name, figure in figures.items()
        if figure is not None
    }
    write_files(folder, contents)
    return [folder / name for name in contents]


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
    found = conv_rows(rows)
    devices = list(dict.fromkeys(row.device for row in found))
    if not devices:
        return None
    figure, axes = _panels(len(devices))
    for axis, device in zip(axes, devices, strict=True):
        _lines(axis, lines_by_variant([row for row in found if row.device == device], "p50"))
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
    found = [row for row in rows if row.benchmark == "spectra_large"]
    kinds = list(dict.fromkeys((row.device, row.workload.split()[0]) for row in found if row.good))
    if not kinds:
        return None
    figure, axes = _panels(len(kinds))
    for axis, (device, graph) in zip(axes, sorted(kinds), strict=True):
        mine = [row for row in found if row.device == device and row.workload.split()[0] == graph]
        _lines(axis, {name: [(n, t / 1e3) for n, t in line] for name, line in lines_by_variant(mine, "p50").items()})
        _dress(axis, f"32 eigenpairs, {graph} graph, {device}", "seconds")
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
