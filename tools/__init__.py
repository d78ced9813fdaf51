"""The pages of this repository, made from what is kept under results/, and its models; not part of the package.

`collect` (runs -> results/) and `results` (results/ -> pages of results, provenance and ablations, the table of the
README), with its parts `rows`, `results_page`, `ablations`, `ablation_plots` and `markers`; `compact` (models that ship
in fewer bytes); `site` and `notebook` (how pages and docstrings become a site, with ``mkdocs.yml``). From the root of
the repository: ``python -m tools.collect RUNS``, ``python -m tools.results``.
"""
