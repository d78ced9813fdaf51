"""Finished and unfinished runs beside the published numbers: tables, figures, one page.

In the order in which data flows: `published` (the paper's tables), `runs` (run folders), `variants` (seeds of one
setting, run or kept of earlier runs), `tables`, `provenance` (where they come from), `figures` (plots),
`write` (pages and tables); `svg` and `render` make pictures and text.
"""

from gssc.report.provenance import results_markdown, write_results
from gssc.report.published import Published, published_gssc, published_rows
from gssc.report.write import Report, write_report

__all__ = [
    "Published",
    "Report",
    "published_gssc",
    "published_rows",
    "results_markdown",
    "write_report",
    "write_results",
]
