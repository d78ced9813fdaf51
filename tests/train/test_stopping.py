import time

import pytest

from gssc.train.stopping import Pace


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def steps(pace, clock, count, seconds):
    for _ in range(count):
        if clock[0] >= pace.due:
            pace.look()
        pace.steps += 1
        clock[0] += seconds


def test_a_collapse_is_said_once(clock):
    said = []
    pace = Pace(said.append)
    steps(pace, clock, 30, 1.0)
    steps(pace, clock, 8, 3.0)  # slower, as machines are now and then
    assert said == []
    steps(pace, clock, 3, 30.0)
    steps(pace, clock, 30, 1.0)
    steps(pace, clock, 3, 30.0)
    assert len(said) == 1
    assert said[0].startswith("training is 30 times slower than in its first minutes")


def test_what_is_no_step_does_not_count(clock):
    said = []
    pace = Pace(said.append)
    steps(pace, clock, 30, 1.0)
    for _ in range(5):
        clock[0] += 1000.0  # an evaluation
        pace.skip(1000.0)
        steps(pace, clock, 10, 1.0)
    assert said == []


def test_a_slow_start_is_no_measure(clock):
    said = []
    pace = Pace(said.append)
    steps(pace, clock, 1, 60.0)  # compiles, fills caches
    steps(pace, clock, 100, 1.0)
    steps(pace, clock, 10, 30.0)
    assert len(said) == 1
