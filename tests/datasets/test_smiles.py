import sys

import numpy as np
import pytest

from gssc.datasets.smiles import read_molecules

# Ordinary molecules, and odd ones: single atoms, charges, radicals, isotopes, salts, stereo bonds, metals, dummy atoms,
# octahedral centres, dative and quadruple bonds, heavy elements, explicit hydrogens, aromatic rings with hetero atoms.
MOLECULES = [
    "CCO",
    "C",
    "[H][H]",
    "[Na+].[Cl-]",
    "c1ccccc1C(=O)O",
    "C[C@H](N)C(=O)O",
    "C[C@@H](O)[C@H](F)Cl",
    "F/C=C/F",
    "F/C=C\\F",
    "FC=CF",
    "C#N",
    "[CH3]",
    "[O][O]",
    "[13CH4]",
    "*CC*",
    "O=C1NC(=O)c2ccccc12",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "[Pt+2](Cl)(Cl)(N)N",
    "F[S](F)(F)(F)(F)F",
    "FP(F)(F)(F)F",
    "[Fe+3]",
    "[U]",
    "[NH4+]",
    "[O-][N+](=O)c1ccc(cc1)[N+](=O)[O-]",
    "C1CC2CCC1CC2",
    "[Cr]$[Cr]",
    "CC(=O)O[Hg]c1ccccc1",
    "[BH3-][NH3+]",
    "OS(=O)(=O)O",
    "C1=CC=C[CH]1",
    "[C@@]12(CCCC1)CCCC2",
    "C/C=C/C=C\\C",
    "N->[Cu+2]",
    "[Rf]",
]


@pytest.mark.filterwarnings("ignore")
def test_features_are_those_of_ogb():
    mol = pytest.importorskip("ogb.utils.mol")
    molecules = read_molecules(MOLECULES, MOLECULES).graphs
    nodes = edges = 0
    for number, text in enumerate(MOLECULES):
        graph = mol.smiles2graph(text)
        n, m = graph["num_nodes"], graph["edge_index"].shape[1]
        assert (int(molecules.ptr[number + 1]), int(molecules.edge_ptr[number + 1])) == (nodes + n, edges + m), text
        assert np.array_equal(molecules.x[nodes : nodes + n].numpy(), graph["node_feat"]), text
        assert np.array_equal(molecules.edge_index[:, edges : edges + m].numpy(), graph["edge_index"]), text
        assert np.array_equal(molecules.edge_attr[edges : edges + m].numpy(), graph["edge_feat"]), text
        nodes, edges = nodes + n, edges + m


def test_scaffolds_are_those_of_bemis_and_murcko():
    pytest.importorskip("rdkit")
    molecules = read_molecules(
        ["CCc1ccccc1", "OC(=O)c1ccccc1", "CCO", "C1CCNCC1C"], ["a", "b", "c", "d"], scaffolds=True
    )
    assert molecules.scaffolds == ["c1ccccc1", "c1ccccc1", "", "C1CCNCC1"]


def test_what_rdkit_cannot_read_is_named_or_left_out(capfd):
    pytest.importorskip("rdkit")
    texts, where = ["CC", "C(C", "", "N"], ["row 1", "row 2", "row 3", "row 4"]
    with pytest.raises(ValueError, match=r"\Arow 2: expected a SMILES that RDKit can read .*, got 'C\(C'\Z"):
        read_molecules(texts, where)
    kept = read_molecules(texts, where, skip_invalid=True)
    assert kept.rows == [0, 3]
    assert read_molecules(["C(C"], ["row 1"], skip_invalid=True).rows == []
    assert capfd.readouterr().err == ""


def test_without_rdkit_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(ValueError, match=r"the package rdkit \(pip install rdkit\)"):
        read_molecules(["C"], ["row 1"])
