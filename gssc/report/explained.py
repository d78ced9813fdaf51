"""Pictures that ``gssc explain`` left in a run folder, for the page."""

import base64
import re
from pathlib import Path

from gssc.checks import fail

FOLDER = "explain"
LARGEST = 8_000_000  # bytes of one picture
NAME = re.compile(r"(kernel|influence)-(train|val|test)-(\d+)-node-(\d+)\.svg")


def explained_pictures(run: Path) -> list[tuple[Path, str]]:
    """The SVG files of ``RUN/explain`` and what each shows, those of one graph together."""
    pictures = []
    for path in (run / FOLDER).glob("*.svg"):
        if match := NAME.fullmatch(path.name):
            kind, split, graph, node = match.groups()
            shown = f"kernels of node {node}" if kind == "kernel" else "influence by distance"
            pictures.append(((split, int(graph), int(node), kind), path, f"{shown}, graph {graph} of {split}"))
    return [(path, shown) for _, path, shown in sorted(pictures)]


def embedded(path: Path) -> str:
    """The picture as an address that holds it: as an image it can run and load nothing, whoever drew it.

    Raises:
        ValueError: If it cannot be read or is no SVG.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        fail(str(path), "a readable picture", error.strerror)
    if b"<svg" not in content[:2000] or not content.rstrip().endswith(b"</svg>"):
        fail(str(path), "a complete SVG picture", f"{len(content)} bytes")
    if len(content) > LARGEST:
        fail(str(path), f"a picture of at most {LARGEST:,} bytes", f"{len(content):,}")
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()
