"""The vocabulary of ZINC as the benchmark encodes it: 28 types of atoms, 3 types of bonds, Kekulé form.

A type is an element with its hydrogens and its charge, as an atom of a Kekulé SMILES names them: hydrogens are named
where the atom stands in brackets, that is where it is charged, where it is a stereocentre (``[C@H]``: "C H1"), or where
they make up another than its usual valence (``[PH]``). All other hydrogens are left out, as are the configurations
themselves. The order of the types is that of the dictionary which the benchmark publishes
(graphdeeplearning/benchmarking-gnns, issue 42).

ZINC's own SMILES give the configuration of practically every stereocentre. Users' often do not, and a "C" where a model
has always seen "C H1" would be strange to it: so each stereocentre counts, whether its configuration is given or not.
"""

from typing import Any

from gssc.checks import fail

ATOMS = (
    *("C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -", "S -", "I", "P"),
    *("O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +", "C H1 -", "P H1 +"),
)
BONDS = {"SINGLE": 1, "DOUBLE": 2, "TRIPLE": 3}
_NUMBERS = {name: number for number, name in enumerate(ATOMS)}


def zinc_columns(molecule: Any, where: str) -> tuple[list[list[int]], list[list[int]]]:
    """Types of the atoms [[type], …] and bonds of an RDKit molecule, which is brought into Kekulé form in place.

    A type that ZINC does not have is an error, which calls the molecule ``where``.
    """
    from rdkit import Chem

    # Atoms whose configuration could be given, whether it is or not. The older of RDKit's two rules is the one that
    # agrees with the benchmark's graphs.
    flat = Chem.Mol(molecule)
    Chem.RemoveStereochemistry(flat)
    found = Chem.FindMolChiralCenters(flat, includeUnassigned=True, useLegacyImplementation=True)
    centres = {number for number, _ in found}
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    atoms, bonds = [], []
    for atom in molecule.GetAtoms():
        name = _name(atom, atom.GetIdx() in centres)
        if name not in _NUMBERS:
            fail(where, f"atoms of the {len(ATOMS)} types that ZINC has", f"{name!r} ({Chem.MolToSmiles(molecule)})")
        atoms.append([_NUMBERS[name]])
    for bond in molecule.GetBonds():
        name = str(bond.GetBondType())
        if name not in BONDS:
            fail(where, "single, double and triple bonds", f"{name.lower()} ({Chem.MolToSmiles(molecule)})")
        bonds.append([BONDS[name]])
    return atoms, bonds


def _name(atom: Any, stereocentre: bool) -> str:
    """Element, hydrogens where a Kekulé SMILES names them, and the sign of the charge: ``"N H1 +"``."""
    from rdkit import Chem

    hydrogens, charge = atom.GetTotalNumHs(), atom.GetFormalCharge()
    usual = Chem.GetPeriodicTable().GetDefaultValence(atom.GetAtomicNum())
    parts = [atom.GetSymbol()]
    if hydrogens and (charge or stereocentre or atom.GetTotalValence() != usual):
        parts.append(f"H{hydrogens}")
    if charge:
        parts.append(("+" if charge > 0 else "-") * abs(charge))
    return " ".join(parts)
