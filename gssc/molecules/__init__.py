"""Whole GINE + GSSC layers of graphs of at most 64 nodes as kernels: a way to run the training step. See README.md.

This is the door: nothing else of the folder is for use outside of it. What is behind it builds on the loop of
``gssc.train``, which asks here.
"""

from gssc.molecules.supported import why_not
from gssc.molecules.trainer import MoleculeGroup

__all__ = ["MoleculeGroup", "why_not"]
