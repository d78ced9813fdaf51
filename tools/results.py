"""From kept results to the pages that show them: results, provenance and ablations in docs/, a table in the README.

python -m tools.results results -o docs --readme README.md
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gssc.checks import check_installed, fail
from gssc.files import write_atomic
from gssc.pretrained.publish import read_notes
from gssc.report.variants import read_recorded
from tools.ablation_plots import comparison_plot
from tools.ablations import SECTIONS, commands, comparison_table, comparisons
from tools.errors import in_one_line
from tools.markers import fill
from tools.results_page import provenance_parts, readme_table, results_parts
from tools.rows import short_note

FIGURES = "figures"


def write_documents(results: Path, docs: Path, readme: Path | None = None) -> list[Path]:
    """Write all pages; what people wrote around the generated parts stays. All of it is computed before any is written.

    Args:
        results: What `tools.collect` keeps; ``notes.yaml`` in it has the footnotes.
        docs: The folder of ``results.md``, ``provenance.md`` and ``ablations.md``, and of their pictures.
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
    recorded = read_recorded(results)
    pages: dict[Path, bytes] = {}
    path = docs / "results.md"
    titles = {
        "summary": "Every recipe",
        "further": "Other runs of these recipes",
        "all-rows": "Every row of the paper's tables",
    }
    pages[path] = _filled(path, "# Results", results_parts(recorded, notes), titles)
    path = docs / "provenance.md"
    titles = {
        "origin": "Where the numbers come from",
        "data": "Data",
        "runs": "How they were run",
        "protocols": "Other protocols",
    }
    pages[path] = _filled(path, "# Provenance", provenance_parts(recorded, notes), titles)
    parts = {}
    for name, mine in comparisons(recorded).items():
        check_installed("make results", "matplotlib")
        picture = f"{FIGURES}/ablation-{name}.svg"
        pages[docs / picture] = comparison_plot(mine)
        tables = [f"{comparison_table(one, short_note(notes, one.recipe))}\n\n{commands(one)}" for one in mine]
        parts[name] = "\n\n".join([f"![{name}]({picture})", *tables])
    path = docs / "ablations.md"
    shown = path.read_text(encoding="utf-8") if path.exists() else ""
    # A part that was there and has no runs any more says so.
    parts |= {name: "Not run." for name, _, _ in SECTIONS if name not in parts and f"<!-- begin {name} -->" in shown}
    pages[path] = _filled(path, "# Ablations", parts, {name: title for name, title, _ in SECTIONS})
    if readme is not None:
        text = readme.read_text(encoding="utf-8")
        pages[readme] = fill(text, {"results": readme_table(recorded, notes)}, str(readme)).encode()
    return pages


def _filled(path: Path, title: str, parts: Mapping[str, str], titles: Mapping[str, str]) -> bytes:
    text = path.read_text(encoding="utf-8") if path.exists() else f"{title}\n"
    return fill(text, parts, str(path), titles).encode()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(help="What `tools.collect` keeps.")] = Path("results"),
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of results.md, provenance.md, ablations.md and their pictures."),
    ] = Path("docs"),
    readme: Annotated[
        Path | None, typer.Option(help="A file in which a part called results is marked, for a short table.")
    ] = None,
) -> None:
    """Write the pages of results and ablations from the runs that were kept.

    Each number stands with its seeds, command, commit, hardware, time and date, beside every row of the paper's tables;
    recipes without a run say so. Only what stands between `<!-- begin … -->` and `<!-- end … -->` is written: text
    around it is yours and stays. Remarks on datasets come from FOLDER/notes.yaml.
    """
    print(f"written: {', '.join(map(str, write_documents(folder, output, readme)))}")


if __name__ == "__main__":
    in_one_line(app)
