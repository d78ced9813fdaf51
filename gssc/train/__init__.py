"""Training: a device-resident store, the loop, checkpoints, and the folder of a run."""

from gssc.train.build import build_model
from gssc.train.loaded import LoadedRun, load_run
from gssc.train.processes import RunSettings
from gssc.train.run import train
from gssc.train.store import GraphStore

__all__ = ["GraphStore", "LoadedRun", "RunSettings", "build_model", "load_run", "train"]
