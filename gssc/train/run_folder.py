"""The folder of one run: what is written into it when, and what a resumed run reads back."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from gssc.checks import fail
from gssc.config import load_recipe
from gssc.environment import describe
from gssc.files import WEIGHTS, remove_leftovers, save_tensors, weights_file, write_atomic, write_json
from gssc.readers import DATASET, FINISHED, read_epochs, read_object
from gssc.train.checkpoint import Best, check_same_run, load_checkpoint, read_checkpoint, save_checkpoint
from gssc.train.step import Position, Trainer


def position_of(folder: Path) -> tuple[int, int]:
    """Epochs, and steps of the next one, after which the run in a folder goes on."""
    path = folder / "checkpoints" / "last.safetensors"
    if not path.exists():
        return 0, 0
    _, about = read_checkpoint(path)
    return about["epoch"], about["step"]


class RunFolder:
    """The files of a run; only the first of several processes ``writes``.

    Its identity is recipe, seed and dataset as plain values: what a checkpoint or a finished run must agree with.
    """

    def __init__(self, path: Path, identity: dict[str, Any], writes: bool) -> None:
        self.path, self.identity, self.writes = path, identity, writes
        self.checkpoint, self.metrics = path / "checkpoints" / "last.safetensors", path / "metrics.jsonl"
        self.events: Any = None  # of TensorBoard
        self.lock: int | None = None
        self.logged = 0

    def is_finished(self) -> bool:
        return (self.path / "summary.json").exists()

    def is_used(self) -> bool:
        """Whether there is a run in it, finished or not: an epoch of one at least, also where none was saved."""
        epochs = self.metrics.exists() and self.metrics.stat().st_size > 0
        return self.is_finished() or self.checkpoint.parent.exists() or epochs

    def summary(self) -> dict[str, Any]:
        """The summary of a run that ended, if it is this one."""
        self._check_files("metrics.jsonl", (weights_file(self.path) or Path(WEIGHTS[0])).name)
        summary = read_object(self.path / "summary.json", FINISHED)
        there = {"recipe": load_recipe(self.path / "config.yaml").to_dict(), "seed": summary.get("seed")}
        check_same_run(self.path, {**there, "dataset": read_object(self.path / "dataset.json", DATASET)}, self.identity)
        return summary

    def _check_files(self, *names: str) -> None:
        for name in names:
            if not (self.path / name).exists():
                fail("run", f"its {name}", f"{self.path}, where there is none")

    def begin(self, trainer: Trainer, resume: bool) -> tuple[Position, Best]:
        """Begin anew, or from the checkpoint where there is one."""
        if self.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            self._hold()
            for folder in (self.path, self.checkpoint.parent):
                remove_leftovers(folder)
        resumes = resume and self.checkpoint.exists()
        start = Position(1, 0, []), Best()
        position, best = load_checkpoint(self.checkpoint, trainer, self.identity) if resumes else start
        if not self.writes:
            return position, best
        # Epochs that were logged after the checkpoint was written are trained again.
        epochs = position.epoch - 1
        lines = read_epochs(self.metrics, epochs) if epochs else []
        text = "".join(f"{line}\n" for line in lines).encode()
        write_atomic(self.metrics, text)
        self.logged = len(text)  # bytes
        write_atomic(self.path / "config.yaml", yaml.safe_dump(self.identity["recipe"], sort_keys=False))
        if not resumes:
            write_json(self.path / "dataset.json", self.identity["dataset"])
            write_json(self.path / "environment.json", describe(trainer.store.device))
        if self.identity["recipe"]["train"]["tensorboard"]:
            # Where it is installed; events from this epoch on are forgotten.
            with suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter

                self.events = SummaryWriter(str(self.path / "tensorboard"), purge_step=position.epoch)
        return position, best

    def _hold(self) -> None:
        """Claim the folder for this process until `release`, or until it ends however it ends.

        The lock is the operating system's, on the folder itself, and leaves no file behind. Where there are no such
        locks (Windows, some network drives) nothing is claimed.
        """
        try:
            import fcntl
        except ImportError:
            return
        self.lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if isinstance(error, BlockingIOError):
                fail("out", "a folder that no other process is training in", str(self.path))

    def release(self) -> None:
        """The reverse of `begin`: give the folder back."""
        if self.events is not None:
            self.events.close()
        if self.lock is not None:
            os.close(self.lock)
        self.events = self.lock = None

    def log(self, record: dict[str, Any]) -> None:
        """The line of an epoch."""
        if self.writes:
            # Not flushed to the disk before a checkpoint needs it: without one, the epoch is trained again.
            with self.metrics.open("r+b") as file:  # which must still be there
                if file.seek(0, os.SEEK_END) != self.logged:
                    fail("run", "its metrics.jsonl as it left it", f"{self.metrics}, which has changed")
                self.logged += file.write(json.dumps(record).encode() + b"\n")
        if self.events is not None:
            for name, value in record.items():
                if name != "epoch" and value is not None:
                    self.events.add_scalar(name, value, record["epoch"])

    def save(self, trainer: Trainer, position: Position, best: Best) -> None:
        """A checkpoint, after the lines of the epochs that it counts."""
        if not self.writes:
            return
        with self.metrics.open("r+b") as file:
            os.fsync(file.fileno())
        save_checkpoint(self.checkpoint, trainer, position, best, self.identity)

    def train_seconds(self) -> float:
        """The time of all epochs, over all lives of the run."""
        return math.fsum(json.loads(line)["seconds"] for line in read_epochs(self.metrics))

    def write_end(
        self, weights: dict[str, Tensor], test: Mapping[str, Tensor], summary: dict[str, Any], times: dict[str, Any]
    ) -> None:
        """The selected weights, predictions and targets of the test set and, last, the summary: the run is finished.

        What the clock decides, ``times``, is in the summary alone.
        """
        self._check_files("config.yaml", "dataset.json")
        about = {"kind": "predictions", **{key: summary[key] for key in ("recipe", "seed", "metric", "test")}}
        save_tensors(self.path / "predictions.safetensors", test, about)
        about = {"kind": "model", "summary": summary, **self.identity}
        save_tensors(self.path / "model.safetensors", weights, about)
        write_json(self.path / "summary.json", summary | times)
