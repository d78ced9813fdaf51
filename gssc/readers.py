"""How files of text are read: JSON and YAML within bounds, and what each kind of file must hold.

Sizes are checked before anything is read, nesting and numbers before anything is made of them; whatever is wrong is a
`DamagedFileError` of one line that names the file and the key. Files of tensors are `gssc.files`.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeGuard

import yaml

from gssc.checks import first_line, shorten

LARGEST_JSON, LARGEST_YAML = 8 << 20, 128 << 10  # bytes
LARGEST_LOG = 64 << 20  # bytes of a metrics.jsonl
DEEPEST = 50  # brackets inside brackets
MOST_COLUMNS = 100_000  # of features
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class DamagedFileError(ValueError):
    """A file that is truncated, altered, or not what it should be."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message))


class Field(NamedTuple):
    """A plain value: what it must be, and in words."""

    fits: Callable[[Any], bool]
    words: str


# A `Field`; a list of one form, of which there may be any number; or a dict of forms by key, with ? behind a key that
# may be missing, and * for all keys that are not named.
Form = Field | list[Any] | dict[str, Any]


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that a float can hold (not a truth value)."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 10**300)


def whole(low: int = 0, high: int = 10**15) -> Field:
    """An integer between two others."""
    return Field(lambda v: type(v) is int and low <= v <= high, f"an integer from {low} to {high:,}")


def maybe(field: Field) -> Field:
    """The same, or null."""
    return Field(lambda v: v is None or field.fits(v), f"{field.words}, or null")


def _sizes(value: object) -> bool:
    """Whether it is what `gssc.nn.encoders.Features` may be."""
    if isinstance(value, list):
        return 0 < len(value) <= MOST_COLUMNS and all(type(v) is int and 0 < v < 2**31 for v in value)
    return value is None or (type(value) is int and 0 < value <= MOST_COLUMNS)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_COLUMNS and all(is_number(v) for v in value)


TEXT = Field(lambda v: isinstance(v, str), "text")
NAME = Field(lambda v: isinstance(v, str) and 0 < len(v) <= 255 and not set(v) & set("/\\\0"), "the name of a file")
TRUTH = Field(lambda v: isinstance(v, bool), "true or false")
NUMBER = Field(is_number, "a number")
SCORE = maybe(NUMBER)
HEX = maybe(TEXT)
FEATURES = Field(_sizes, "a number of columns, a list of vocabulary sizes, or null")
SCALE = Field(lambda v: is_number(v) or _numbers(v), "a number, or one for each target")
MEAN_AND_DEVIATION = Field(
    lambda v: isinstance(v, list) and len(v) == 2 and all(map(_numbers, v)) and len(v[0]) == len(v[1]),
    "means and deviations, equally many",
)
TASK = {"level": TEXT, "kind": TEXT, "outputs": whole(1, MOST_COLUMNS), "metric": TEXT}
TASK |= {"weighted?": TRUTH, "shift?": SCALE, "scale?": SCALE}
DATASET: Form = {
    "name": TEXT, "task": TASK, "node_features": FEATURES, "edge_features": FEATURES,
    "standardize": {"*": MEAN_AND_DEVIATION}, "edge_weights?": TRUTH, "degree_histogram?": [whole()], "graphs?": TEXT,
}  # fmt: skip
# A seed's summary.json, as far as it is read, and as it is where a run is finished.
SUMMARY: dict[str, Any] = {"metric": TEXT, "validation": SCORE, "test": SCORE, "train_seconds?": NUMBER}
FINISHED: Form = SUMMARY | {
    "recipe": TEXT, "seed": whole(), "dataset": TEXT, "higher_is_better": TRUTH, "epochs_run": whole(),
    "parameters": whole(), "train_seconds": NUMBER,
}  # fmt: skip
SPREAD: Form = {"mean": SCORE, "std": NUMBER, "values": [SCORE]}
SEEDS: Form = {"seeds": [whole()], "validation": SPREAD, "test": SPREAD}
EPOCH: Form = {"epoch": whole(1), "seconds": NUMBER}
TRIALS: Form = [{"overrides": [TEXT], "folder": NAME, "validation": SPREAD, "parameters_tried?": {}}]
CHECKPOINT: Form = {
    "epoch": whole(), "step": whole(), "average_steps": whole(), "best_epoch": maybe(whole()), "best_score": HEX,
    "recent_scores?": [TEXT],
}  # fmt: skip
MOST_FILES, MOST_BYTES = 100, 1 << 30  # of a published model, far above any of a recipe (2 MB)
MANIFEST: Form = {"format": whole(), "files": {"*": {"bytes": whole(0, MOST_BYTES), "sha256": TEXT}}}

SHARDS: Form = {
    "format": whole(1, 1), "nodes": whole(), "edges": whole(), "partition": TEXT, "method": TEXT, "cut": whole(),
    "recipe": {}, "dataset": DATASET, "graphs": TEXT,
    "files": [{"name": NAME, "bytes": whole(), "nodes": whole(), "edge_index": whole(), "halo": whole()}],
}  # fmt: skip


def conform(value: Any, form: Form, where: object, key: str = "") -> None:
    """Fail, naming the file and the key, unless a value is of this form."""
    if isinstance(form, Field):
        if not form.fits(value):
            _refuse(where, key, form.words, value)
    elif isinstance(form, list):
        if not isinstance(value, list):
            _refuse(where, key, "a list", value)
        for number, entry in enumerate(value):
            conform(entry, form[0], where, f"{key}[{number}]")
    else:
        if not isinstance(value, Mapping):
            _refuse(where, key, "a JSON object", value)
        for name in (name for name in form if name[-1] not in "?*" and name not in value):
            raise DamagedFileError(f"{where}{', ' * bool(key)}{key}: expected a key {name!r}, got none")
        for name, entry in value.items():
            inner = form.get(name, form.get(f"{name}?", form.get("*")))
            if inner is not None:
                conform(entry, inner, where, f"{key}.{name}" if key else str(name))


def _refuse(where: object, key: str, expected: str, value: Any) -> NoReturn:
    shown = type(value).__name__ if isinstance(value, (list, dict)) else repr(value)
    raise DamagedFileError(f"{where}{', ' * bool(key)}{key}: expected {expected}, got {shown}")


def read_bytes(path: Path, most: int, kind: str = "file") -> bytes:
    """The bytes of a file, of which no more are read than may be."""
    try:
        with path.open("rb") as file:
            data = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    except FileNotFoundError:
        raise DamagedFileError(f"{path}: expected a {kind}, got no such file") from None
    except OSError as error:
        raise DamagedFileError(f"{path}: expected a {kind}, got {error}") from None
    if len(data) > most:
        raise DamagedFileError(f"{path}: expected a {kind} of at most {most:,} bytes, got more")
    return data


def unpacked(raw: bytes, decompressor: Any, most: int) -> bytes:
    """The content of compressed bytes, of which no more is made than may be; else a ValueError."""
    content: bytes = decompressor.decompress(raw, most)
    if not decompressor.eof:
        raise ValueError("a file that was cut, or is too large")
    return content


def read_text(path: Path, most: int = LARGEST_JSON) -> str:
    """A text in UTF-8."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path}: expected text in UTF-8, got {error}") from None


def read_json(path: Path, form: Form | None = None) -> Any:
    """The values of a JSON file, of this form; a missing or damaged one is an error of one line."""
    return parse_json(read_bytes(path, LARGEST_JSON, "JSON file"), path, form)


def read_object(path: Path, form: Form | None = None) -> dict[str, Any]:
    """`read_json` of a file that holds an object."""
    values: dict[str, Any] = read_json(path, {} if form is None else form)
    return values


def read_yaml(path: Path) -> Any:
    """The values of a YAML file; errors as of `read_json`."""
    return parse_yaml(read_bytes(path, LARGEST_YAML, "YAML file"), path)


def read_epochs(path: Path, count: int | None = None) -> list[str]:
    """The lines of a metrics.jsonl, or the first of them, each of which must be an epoch as `gssc train` writes it."""
    lines = read_text(path, LARGEST_LOG).splitlines()[:count]
    for number, line in enumerate(lines, 1):
        parse_json(line, f"{path} line {number}", EPOCH)
    if count is not None and len(lines) < count:
        raise DamagedFileError(f"{path}: expected the {count} epochs that the checkpoint counts, got {len(lines)}")
    return lines


def parse_json(raw: bytes | str, where: object, form: Form | None = None, *, finite: bool = True) -> Any:
    """The values of JSON, with finite numbers unless others may be, and of this form."""
    if len(raw) > LARGEST_JSON:
        raise DamagedFileError(f"{where}: expected JSON of at most {LARGEST_JSON:,} bytes, got {len(raw):,}")
    try:
        value = json.loads(raw, parse_constant=_finite, parse_float=_finite) if finite else json.loads(raw)
        _check_depth(value)
    except NONSENSE as error:
        raise DamagedFileError(f"{where}: expected a JSON file, got {_reason(error)}") from None
    if form is not None:
        conform(value, form, where)
    return value


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{shorten(text, 20)}, which JSON has no number for")
    return number


def _check_depth(value: Any) -> None:
    """Fail where lists and objects lie too deep inside each other, level by level."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (list, dict)))
        level = [value for values in inner for value in values]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} levels of nesting")


class _Loader(yaml.SafeLoader):
    """Without aliases, of which a few lines can stand for gigabytes, and with bounded nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} levels of nesting")
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (write out what it stands for)")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(raw: bytes | str, where: object, kind: str = "a YAML file") -> Any:
    """The values of YAML that has plain values, lists and mappings alone."""
    if len(raw) > LARGEST_YAML:
        raise DamagedFileError(f"{where}: expected YAML of at most {LARGEST_YAML:,} bytes, got {len(raw):,}")
    try:
        return yaml.load(raw.decode() if isinstance(raw, bytes) else raw, _Loader)
    except (yaml.YAMLError, *NONSENSE) as error:
        text = f"{raw!r} ({_reason(error)})" if isinstance(raw, str) else _reason(error)
        raise DamagedFileError(f"{where}: expected {kind}, got {text}") from None


def _reason(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, RecursionError):
        return f"more than {DEEPEST} levels of nesting"
    return first_line(error)
