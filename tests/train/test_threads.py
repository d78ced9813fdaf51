import os
import subprocess
import sys
import time

import pytest
import torch
from small_run import small_dataset, small_recipe

from gssc.train import RunSettings, threads, train
from gssc.train.threads import Threads, core_times, cores_left, giving_way


def after(*changes):
    return {str(number): change for number, change in enumerate(changes)}


@pytest.fixture
def cores(monkeypatch):
    """Two threads as far as anybody can tell, on a machine of which the kernel says what is put into the list."""
    times, number = [{}], [2]
    monkeypatch.setattr(threads, "core_times", lambda: times[0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: number.__setitem__(0, count))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return times


@pytest.mark.parametrize(
    ("count", "changes", "left"),
    [
        (2, [(100, 0), (100, 0)], 2),
        (2, [(50, 50), (50, 50)], 1),  # a neighbour on each core
        (2, [(100, 0), (50, 50)], 1),
        (16, [(100, 0)] * 12 + [(50, 50)] * 4, 14),
        (64, [(100, 0)] * 60 + [(99, 1)] * 4, 64),  # what a machine does for itself
        (2, [(1, 99), (1, 99)], 1),
        (2, [], 2),  # a system that says nothing
        (2, [(0, 0)], 2),
    ],
)
def test_threads_are_as_many_as_cores_are_left(count, changes, left):
    assert cores_left(count, {}, after(*changes)) == left
    past = dict.fromkeys(after(*changes), (7, 9))
    later = {name: (ran + 7, waited + 9) for name, (ran, waited) in after(*changes).items()}
    assert cores_left(count, past, later) == left


@pytest.mark.skipif(not threads.TASKS.exists(), reason="only Linux says how long threads waited for a core")
def test_the_kernel_tells_of_a_neighbour():
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    here = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as neighbour:
        try:
            neighbour.stdout.readline()
            os.sched_setaffinity(0, {core})
            before, end = core_times(), time.monotonic() + 0.3
            while time.monotonic() < end:
                pass
            assert cores_left(2, before, core_times()) == 1
        finally:
            os.sched_setaffinity(0, here)
            neighbour.kill()


def test_they_give_way_with_one_line_and_come_back_after_longer_and_longer_rests(cores, monkeypatch):
    clock, said = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ours = Threads(said.append)

    def look(seconds, *changes):
        clock[0] += seconds
        base = cores[0]
        totals = {name: base.get(name, (0, 0)) for name in after(*changes)}
        cores[0] = {n: tuple(a + b for a, b in zip(totals[n], c, strict=True)) for n, c in after(*changes).items()}
        ours.look()
        return torch.get_num_threads()

    busy, free = [(50, 50), (50, 50)], [(100, 0)]
    assert look(0.5, *busy) == 2  # too early to tell
    assert look(0.6, *busy) == 1
    assert look(59, *free) == 1
    assert look(2, *free) == 2
    assert look(2, *busy) == 1
    assert look(100, *free) == 1
    assert look(21, *free) == 2
    assert len(said) == 1
    assert said[0].startswith("other programs use the cores: 1 of 2 threads from here on")


def test_a_run_gives_way_between_its_steps_and_gives_the_threads_back(cores, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(threads, "SECONDS", 0.0)
    monkeypatch.setattr(threads, "cores_left", lambda count, before, now: 1)
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.epochs=1")
    train(recipe, dataset, 0, tmp_path / "auto", RunSettings(torch.device("cpu"), cache=tmp_path / "cache"))
    assert capsys.readouterr().out.count("1 of 2 threads from here on") == 1
    assert torch.get_num_threads() == 2
    held = RunSettings(torch.device("cpu"), cache=tmp_path / "cache", threads=2)
    train(recipe, dataset, 0, tmp_path / "held", held)
    assert "threads" not in capsys.readouterr().out


def test_threads_that_somebody_chose_stay(cores, monkeypatch):
    monkeypatch.setattr(threads, "SECONDS", 0.0)
    monkeypatch.setattr(threads, "cores_left", lambda count, before, now: 1)
    for name, wanted, left in (("OMP_NUM_THREADS", True, 2), ("SOMETHING", False, 2), ("SOMETHING", True, 1)):
        with monkeypatch.context() as patched, giving_way_in(patched, name, wanted) as look:
            look()
            assert torch.get_num_threads() == left
        assert torch.get_num_threads() == 2


def giving_way_in(patched, name, wanted):
    patched.setenv(name, "2")
    return giving_way(lambda line: None, wanted)
