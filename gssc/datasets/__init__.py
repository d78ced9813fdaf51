"""Datasets: generated ones need no download."""

from gssc.datasets.synthetic import cycle_counting, cycle_counts

__all__ = ["cycle_counting", "cycle_counts"]
