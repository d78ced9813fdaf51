"""Trained models: found by name, folder or URL, and published from a run.

A published model is a folder of a few small files, the same that a run writes, with a manifest of their checksums:
`manifest` (checksums), `find` (name, folder or URL -> model), `publish` (run -> folder).
"""

from gssc.pretrained.find import load_pretrained, open_model, pretrained_names

__all__ = ["load_pretrained", "open_model", "pretrained_names"]
