"""Where a number comes from: command, commit, hardware, date, schedule, time. In words, without a machine's paths."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gssc.recipes import find_recipe, recipe_names

PROVENANCE = ("command", "commit", "hardware", "date")
# Options that say where a run lies or how it went on, and cannot change its result.
PLACES = ("--data-root", "--out", "-o", "--pack", "--cache", "--time-limit", "--device")
FLAGS = ("--resume", "--finish", "--quiet")
# Options whose file matters, but not where it lies.
FILES = ("--data", "--csv")


def provenance(environment: Mapping[str, Any]) -> dict[str, str]:
    """Command, commit, hardware and date, as far as an ``environment.json`` tells."""
    hardware = environment.get("hardware")
    if isinstance(hardware, Mapping):
        device, cpu = str(hardware.get("device") or ""), str(hardware.get("cpu") or "")
        hardware = cpu if device in ("", "cpu") and cpu else device
    found = {key: str(environment.get(key) or "") for key in PROVENANCE}
    # A + at the end says that files were changed since that commit.
    commit = found["commit"][:10] + ("+" if found["commit"][10:].endswith("+") else "")
    return found | {"commit": commit, "date": found["date"][:10], "hardware": str(hardware or "")}


def public_command(text: str) -> str:
    """A command as another machine would give it: without the folders of this one."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    kept: list[str] = []
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if before in PLACES or word in (*PLACES, *FLAGS) or (equals and option in PLACES):
            pass
        elif option == "train.start":
            kept.append(f"{option}={_public_place(value)}")
        elif before in FILES or (equals and option in (*FILES, "data.file")):
            kept.append(Path(word).name if before in FILES else f"{option}={Path(value).name}")
        else:
            # A recipe of one's own is given by its file.
            kept.append(Path(word).name if word.endswith((".yaml", ".yml")) and not equals else word)
        before = word
    return shlex.join(kept)


def _public_place(start: str) -> str:
    """``train.start`` without the folders of a machine: a name, a URL, or a folder below the present one."""
    return Path(start).name if Path(start).is_absolute() else start


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe whose own data go by the name of their file, and likewise the weights it begins with."""
    found, data, train = dict(config), config.get("data"), config.get("train")
    if isinstance(data, Mapping) and data.get("file"):
        found["data"] = dict(data) | {"file": Path(str(data["file"])).name}
    if isinstance(train, Mapping) and train.get("start"):
        found["train"] = dict(train) | {"start": _public_place(str(train["start"]))}
    return found


def schedule(config: Mapping[str, Any], run: int | None = None) -> str:
    """``"200 of 2,000 epochs"`` where a run is shorter or longer than the shipped recipe of its name; else nothing.

    Where it was stopped after ``run`` epochs of its own schedule, that is said too.
    """
    name, train = config.get("name"), config.get("train")
    epochs = train.get("epochs") if isinstance(train, Mapping) else None
    if name not in recipe_names() or not isinstance(epochs, int):
        return ""
    full = find_recipe(str(name)).train.epochs
    if run is not None and run < epochs:
        return f"stopped after {run:,} of {epochs:,} epochs" + (f"; the recipe has {full:,}" if epochs != full else "")
    return "" if epochs == full else f"{epochs:,} of {full:,} epochs"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
