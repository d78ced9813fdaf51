import json
import shutil
import subprocess
import sys

import pytest
import torch

from gssc import environment
from gssc.environment import commit, describe, hardware


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a package and other files, taken for the one that runs."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.delenv("GSSC_COMMIT", raising=False)
    (tmp_path / "gssc").mkdir()
    (tmp_path / "gssc" / "code.py").write_text("1\n")
    (tmp_path / "results.csv").write_text("1\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "gssc" / "environment.py"))
    return tmp_path


def test_a_commit_is_marked_where_the_package_differs_from_it(checkout):
    clean = commit()
    assert len(clean) >= 7
    assert not clean.endswith("+")
    (checkout / "results.csv").write_text("2\n")  # not code
    assert commit() == clean
    (checkout / "gssc" / "code.py").write_text("2\n")
    assert commit() == f"{clean}+"


def test_a_copy_without_history_may_be_told_its_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "gssc" / "environment.py"))
    monkeypatch.delenv("GSSC_COMMIT", raising=False)
    assert commit() == "unknown"
    monkeypatch.setenv("GSSC_COMMIT", "abc123")
    assert commit() == "abc123"


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/x/bin/gssc", "train", "zinc-12k", "a=b c"], "gssc train zinc-12k 'a=b c'"),
        (["/x/gssc/__main__.py", "train"], "gssc train"),
        (["/x/mine.py", "--fast"], "python mine.py --fast"),
        ([""], "python"),
    ],
)
def test_the_command_is_the_one_that_was_typed(argv, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    assert describe(torch.device("cpu"))["command"] == command


def test_the_description_is_plain_values():
    about = describe(torch.device("cpu"))
    assert json.loads(json.dumps(about)) == about
    assert about["versions"]["torch"] == torch.__version__
    assert about["hardware"]["cpu"] == hardware("cpu") != ""
