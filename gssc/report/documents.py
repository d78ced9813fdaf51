"""From kept results to the pages that show them: docs/results.md, docs/ablations.md, and a table in the README."""

from collections.abc import Mapping
from pathlib import Path

from gssc.checks import fail
from gssc.files import write_atomic
from gssc.report.ablation_plots import comparison_plot
from gssc.report.ablations import SECTIONS, commands, comparison_table, comparisons
from gssc.report.collected import read_collected
from gssc.report.marked import fill
from gssc.report.notes import read_notes
from gssc.report.results_page import readme_table, results_parts
from gssc.report.svg import need_matplotlib

FIGURES = "figures"


def write_documents(results: Path, docs: Path, readme: Path | None = None) -> list[Path]:
    """Write all pages; what people wrote around the generated parts stays. All of it is computed before any is written.

    Args:
        results: What `gssc.report.collected.collect` keeps; ``notes.yaml`` in it has the footnotes.
        docs: The folder of ``results.md`` and ``ablations.md``, and of their pictures.
        readme: A file with the marks of the part ``results``.
    """
    pages = make_documents(results, docs, readme)
    for path, content in pages.items():
        write_atomic(path, content)
    return list(pages)


def make_documents(results: Path, docs: Path, readme: Path | None = None) -> dict[Path, bytes]:
    """The content of all pages, by path."""
    if not results.is_dir():
        fail("results", "an existing folder", str(results))
    notes_file = results / "notes.yaml"
    notes = read_notes(notes_file if notes_file.exists() else None)
    collected = read_collected(results)
    pages: dict[Path, bytes] = {}
    path = docs / "results.md"
    titles = {
        "summary": "Every recipe",
        "origin": "Where the numbers come from",
        "protocols": "Other protocols",
        "all-rows": "Every row of the paper's tables",
    }
    pages[path] = _filled(path, "# Results", results_parts(collected, notes), titles)
    found = comparisons(collected)
    parts = {}
    for name, _, _ in SECTIONS:
        if name in found:
            need_matplotlib()
            picture = f"{FIGURES}/ablation-{name}.svg"
            pages[docs / picture] = comparison_plot(found[name])
            said = {recipe: note.get("short") or note.get("data", "") for recipe, note in notes.items()}
            tables = "\n\n".join(
                f"{comparison_table(one, said.get(one.recipe, ''))}\n\n{commands(one)}" for one in found[name]
            )
            parts[name] = f"![{name}]({picture})\n\n{tables}"
    path = docs / "ablations.md"
    shown = path.read_text(encoding="utf-8") if path.exists() else ""
    # A part that was there and has no runs any more says so.
    parts |= {name: "Not run." for name, _, _ in SECTIONS if name not in found and f"<!-- begin {name} -->" in shown}
    pages[path] = _filled(path, "# Ablations", parts, {name: title for name, title, _ in SECTIONS})
    if readme is not None:
        text = readme.read_text(encoding="utf-8")
        pages[readme] = fill(text, {"results": readme_table(collected, notes)}, str(readme)).encode()
    return pages


def _filled(path: Path, title: str, parts: Mapping[str, str], titles: Mapping[str, str]) -> bytes:
    text = path.read_text(encoding="utf-8") if path.exists() else f"{title}\n"
    return fill(text, parts, str(path), titles).encode()
