"""Finished and unfinished runs beside the published numbers: tables, figures, one page.

In the order in which data flows: `published` (the paper's tables), `runs` (run folders), `variants` (seeds of one
setting), `tables`, `origin` and `results` (where they come from), `figures` and `predicted` (plots), `page` (HTML),
`write`. For what outlives a run: `collected` (the small part that is kept), `notes`, `results_page`, `ablations`,
`ablation_plots`, `marked` and `documents` (the pages of a repository).
"""

from gssc.report.collected import collect
from gssc.report.documents import write_documents
from gssc.report.published import Published, published_gssc, published_rows
from gssc.report.results import results_markdown, write_results
from gssc.report.write import Report, write_report

__all__ = [
    "Published",
    "Report",
    "collect",
    "published_gssc",
    "published_rows",
    "results_markdown",
    "write_documents",
    "write_report",
    "write_results",
]
