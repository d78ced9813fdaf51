"""The distribution has a name of its own, and says so where another one is in its way."""

import re
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import gssc
from gssc.cli import app
from gssc.distribution import NAME, VERSION, warn_of_namesake

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def namesake(tmp_path, monkeypatch):
    """Installs a distribution called gssc with these files; without any it has no record of them."""

    def install(*files):
        about = tmp_path / "gssc-0.0.9.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gssc\nVersion: 0.0.9\n")
        if files:
            (about / "RECORD").write_text("".join(f"{file},,\n" for file in files))
            for file in files:
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / file).write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        warn_of_namesake.cache_clear()
        return about

    yield install
    warn_of_namesake.cache_clear()


def test_the_other_package_is_named_in_one_line(namesake):
    namesake("gssc/__init__.py", "gssc/infer.py")
    with pytest.warns(UserWarning, match=r"^the distribution gssc 0\.0\.9 is installed, .* gssc-pyg again$") as said:
        warn_of_namesake()
    warn_of_namesake()
    assert len(said) == 1
    assert "\n" not in str(said[0].message)


@pytest.mark.parametrize("files", [(), ("bin/gssc", "gssc/recipe_files/zinc-12k.yaml"), ("other/gssc.py",)])
def test_what_has_no_module_in_our_folder_is_no_clash(namesake, files):
    namesake(*files)
    warn_of_namesake()


@pytest.mark.parametrize("damage", ["METADATA", "RECORD"])
def test_damaged_metadata_never_fail(namesake, damage):
    (namesake("gssc/__init__.py") / damage).write_bytes(b"\xff\xfe\x00")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warn_of_namesake()


def test_it_is_asked_at_import_and_by_the_command(monkeypatch, namesake):
    namesake("gssc/__init__.py")
    monkeypatch.setattr(sys, "argv", ["gssc", "--version"])
    with pytest.warns(UserWarning, match="gssc 0.0.9"), pytest.raises(SystemExit):
        gssc.cli.main()  # also where `import gssc` is theirs
    assert "warn_of_namesake()\n" in (ROOT / "gssc/__init__.py").read_text()


def test_version():
    assert CliRunner().invoke(app, ["--version"], catch_exceptions=False).output == f"gssc-pyg {VERSION}\n"
    assert gssc.__version__ == VERSION
    assert PROJECT["name"] == NAME == "gssc-pyg"
    assert PROJECT["dynamic"] == ["version"]  # read from gssc/distribution.py, so that there is one


def test_citation():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(cited)
    assert (cited["version"], cited["license"]) == (VERSION, PROJECT["license"])
    (paper,) = cited["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Huang", "Miao", "Li"]
    assert "2406.05815" in paper["url"]


def test_nothing_claims_an_index():
    """What is said to be installed by its name must be there by that name: optional packages, never this one."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/*.ipynb"), *ROOT.glob("gssc/**/*.*")]
    for path in files:
        if path.suffix in (".md", ".py", ".ipynb", ".html") and path.name != "CHANGELOG.md":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"pip install ['\"]?gssc[-_a-z]*(\[|['\"\s]|$)", text, flags=re.MULTILINE), path
            assert "gssc[" not in text, path
            for wheel in re.findall(r"gssc_pyg-[^-]*", text):
                assert wheel == f"gssc_pyg-{VERSION}", path
