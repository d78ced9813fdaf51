"""Files of text: whatever is in them, they are read within bounds or are an error of one short line."""

import json
import random

import pytest

from gssc.checks import LONGEST, check_choice, fail
from gssc.datasets.flat import from_about
from gssc.readers import (
    DATASET,
    EPOCH,
    LARGEST_JSON,
    LARGEST_YAML,
    MANIFEST,
    DamagedFileError,
    parse_json,
    parse_yaml,
    read_epochs,
    read_json,
)

ABOUT = {
    "name": "rings",
    "task": {"level": "graph", "kind": "regression", "outputs": 2, "metric": "mae", "shift": [0.0, 1.0], "scale": 2.0},
    "node_features": 3,
    "edge_features": [4, 2],
    "standardize": {"x": [[0.0, 0.5, 1.0], [1.0, 2.0, 3.0]]},
}


def complaint(call, *arguments) -> str | None:
    """The line that a call is refused with, None where it is not."""
    try:
        call(*arguments)
    except ValueError as error:
        return str(error)
    return None


def refused(call, *arguments) -> str:
    with pytest.raises(ValueError, match="expected ") as caught:
        call(*arguments)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) <= LONGEST
    return line


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 10**6,
        "[" * 60 + "]" * 60,
        '{"a":' * 1000,
        "9" * 5000,
        "[1e999]",
        "[NaN]",
        "[-Infinity]",
        "\ud800",
        "{}" * 2,
    ],
)
def test_json_that_is_none(text):
    refused(parse_json, text.encode("utf-8", "surrogatepass"), "file")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1, 2]\nb: *a",
        "a: &a\n  <<: *a",
        "[" * 10**5,
        "- " * 1000,
        "!!timestamp foo",
        "!!int ''",
        "!!bool maybe",
        "a: 2024-99-99",
        "{[1]: 2, {a: b}: 3}",
        "!!python/object/apply:os.system [false]",
        "a: " + "9" * 5000,
        "\x00",
        "a: b: c",
    ],
)
def test_yaml_that_is_none(text):
    refused(parse_yaml, text, "file")


def test_sizes_are_looked_at_before_contents(tmp_path):
    refused(parse_yaml, "a" * (LARGEST_YAML + 1), "file")
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    assert f"{LARGEST_JSON:,} bytes" in refused(read_json, large)
    assert "got" in refused(read_json, tmp_path)  # a folder
    assert "no such file" in refused(read_json, tmp_path / "none")


@pytest.mark.parametrize(
    "value", [{"files": {"x": {"bytes": float("inf"), "sha256": ""}}, "format": 1}, {"format": "1"}]
)
def test_numbers_of_a_manifest(value):
    refused(parse_json, json.dumps(value), "manifest.json", MANIFEST)


def test_each_key_of_a_description_is_looked_at():
    parse_json(json.dumps(ABOUT), "dataset.json", DATASET)
    assert from_about(ABOUT).task.shift == (0.0, 1.0)
    wrong = [None, True, -1, 1.5, "x", [], {}, [[]], [1, [2]], 10**400, 10**12, {"x": [[1], [1, 2]]}]
    for path in [("task",), *(("task", key) for key in ABOUT["task"]), *((key,) for key in ABOUT)]:
        lines = []
        for value in wrong:
            about = json.loads(json.dumps(ABOUT))
            (about if len(path) == 1 else about["task"])[path[-1]] = value
            lines.append(complaint(from_about, about))
        named = [line for line in lines if line and (path[-1] in line or "standardize.x" in line)]  # the key
        assert len(named) == sum(line is not None for line in lines) > len(wrong) / 2, path
        assert max(map(len, named)) <= LONGEST
        if path[-1] not in ("shift", "scale"):
            about = json.loads(json.dumps(ABOUT))
            del (about if len(path) == 1 else about["task"])[path[-1]]
            assert repr(path[-1]) in refused(from_about, about)
    assert "shifd" in refused(from_about, ABOUT | {"task": ABOUT["task"] | {"shifd": 1.0}})
    assert "task.scale" in refused(from_about, ABOUT | {"task": ABOUT["task"] | {"scale": [1.0]}})


def test_any_flipped_bit_is_read_or_refused_in_one_line():
    raw, chance = json.dumps(ABOUT).encode(), random.Random(0)
    for at, bit in chance.sample([(at, bit) for at in range(len(raw)) for bit in range(8)], 1500):
        changed = bytearray(raw)
        changed[at] ^= 1 << bit
        line = complaint(lambda raw: from_about(parse_json(raw, "dataset.json", DATASET)), bytes(changed))
        assert line is None or len(line) <= LONGEST


def test_epochs_that_are_lost_are_missed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 1, "seconds": 1.0}\n{"epoch": 2, "seconds": 1.5}\n{"ep')
    assert len(read_epochs(path, 2)) == 2
    assert "metrics.jsonl line 3" in refused(read_epochs, path)
    path.write_text('{"epoch": 1, "seconds": "1"}\n')
    assert "seconds" in refused(read_epochs, path)
    path.write_text("")
    assert "2 epochs" in refused(read_epochs, path, 2)
    assert parse_json('{"epoch": 1, "seconds": 0}', "x", EPOCH) == {"epoch": 1, "seconds": 0}


def test_errors_are_short_whatever_came():
    assert refused(fail, "a" * 100, "b" * 500, "c" * 10**6).startswith("a" * 100 + ": expected b")
    assert refused(fail, "x", "a line", "\n\x1b[31m\u2028").startswith("x: expected a line, got ")
    headings = [f"column {number}" for number in range(200_000)]
    assert refused(check_choice, "column", "colunm 7", headings).endswith("(did you mean 'column 7'?)")
    assert isinstance(DamagedFileError("x" * 1000).args[0], str)
    assert len(str(DamagedFileError("x" * 1000))) == LONGEST
