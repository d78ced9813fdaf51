"""Finished and unfinished runs beside the published numbers."""

from gssc.report.published import Published, published_gssc, published_rows

__all__ = ["Published", "published_gssc", "published_rows"]
