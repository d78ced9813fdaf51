"""Accuracy side by side: settings are equal but for the part and its width, and what has finished is shown."""

import itertools
import json

import pytest

from gssc.recipes import find_recipe
from tools import side_by_side
from tools.equal_width import equal_width
from tools.side_by_side import CONTROLS, EPOCHS, PARTS, main, overrides, parameters


def test_the_nearest_width():
    for start in (40, 98, 300):
        assert equal_width(lambda width: width * width, 10_000, start) == 100
        assert equal_width(lambda width: width * width, 97 * 97, start) == 96


@pytest.mark.parametrize("name", ["cycles-4", "peptides-func"])
def test_parameters_are_within_ten_percent(name):
    wanted = parameters(find_recipe(name))
    for part in PARTS:
        changes = overrides(name, part, EPOCHS[name])
        assert abs(parameters(find_recipe(name).override(changes)) / wanted - 1) <= 0.1
        assert f"train.epochs={EPOCHS[name]}" in changes


def test_controls_have_a_fifth_of_the_schedule(capsys):
    names = ["zinc-full", "cycles-3", "mnist"]
    main(["--controls", "--list", "--recipes", *names])
    lines = capsys.readouterr().out.splitlines()
    for line, (name, part) in zip(lines, itertools.product(names, CONTROLS), strict=True):
        words = line.split()
        assert words[:4] == ["gssc", "train", name, f"model.glob={part}"]
        changed = find_recipe(name).override([word for word in words[3:] if "=" in word])
        full = 500 if name == "zinc-full" else find_recipe(name).train.epochs
        assert changed.train.epochs == full / 5
        assert 0 < changed.optim.warmup_epochs <= changed.train.epochs / 10
        assert words[words.index("--out") + 1] == f"runs/controls/{name}/{part}"
    main(["--controls", "--recipes", "cycles-3", "--parts", "gsc", "--epochs", "2", "--list"])
    assert " train.epochs=2 " in capsys.readouterr().out


def test_commands_and_report(tmp_path, capsys, monkeypatch):
    main(["--recipes", "cycles-4", "--parts", "gssc", "mamba", "--list", "--data-root", "data"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("gssc train cycles-4 model.glob=gssc train.epochs=250 ")
    assert "model.glob=mamba" in second
    assert second.endswith("--seeds 0-1 --out runs/side-by-side/cycles-4/mamba --resume --data-root data")
    done = tmp_path / "zinc-12k" / "grit"
    done.mkdir(parents=True)
    score = {"mean": 0.1, "std": 0.01, "values": [0.1, 0.1]}
    summary = {"validation": score, "test": score, "seeds": [0, 1], "parameters": 500_000, "train_seconds": 60.0}
    (done / "summary.json").write_text(json.dumps(summary))
    picture = tmp_path / "p.svg"
    main(["--out", str(tmp_path), "--report", "--picture", str(picture)])
    assert "| zinc-12k | grit | 0.1" in capsys.readouterr().out
    assert b"</svg>" in picture.read_bytes()
    monkeypatch.setattr(side_by_side.subprocess, "run", lambda words: type("Failed", (), {"returncode": 1}))
    main(["--recipes", "zinc-12k", "--parts", "mamba", "--out", str(tmp_path)])
    assert "zinc-12k, mamba: no result" in capsys.readouterr().out
