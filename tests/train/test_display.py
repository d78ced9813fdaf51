import io

import pytest
from rich.console import Console

from gssc.train import display
from gssc.train.display import Display, duration

RECORD = {
    "epoch": 1,
    "lr": 0.1,
    "train_loss": 0.5,
    "val_loss": 0.25,
    "val": 0.125,
    "best_epoch": 1,
    "seconds": 2.0,
    "graphs_per_second": 1234.5,
}


def test_a_log_gets_plain_lines(capsys):
    with Display("cycles-3 seed 0", 9, "mae") as show:
        show.say("[red]started")
        show.epoch(RECORD, 0.125)
    out = capsys.readouterr().out
    first, second = out.splitlines()
    assert first == "cycles-3 seed 0: [red]started"
    assert second.startswith(
        "cycles-3 seed 0: epoch 1/9  train loss 0.50000  val loss 0.25000  val mae 0.12500  best 0.12500 (epoch 1)  "
        "graphs/s 1,234  left "
    )
    assert "\x1b" not in out


def test_epochs_without_evaluation_show_dashes(capsys):
    bare = {key: value for key, value in RECORD.items() if not key.startswith("val")} | {"best_epoch": None}
    with Display("run", 9, "mae") as show:
        show.epoch(bare, None)
        show.epoch({**RECORD, "epoch": 2, "val": None}, None)
        show.epoch({**RECORD, "epoch": 3, "val": None, "val_loss": None}, None)
    first, second, third = capsys.readouterr().out.splitlines()
    assert "val loss -  val mae -  best -" in first
    assert "val loss 0.25000  val mae -" in second
    assert "val loss -  val mae -" in third


def test_lines_in_a_log_are_not_too_many(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    with Display("run", 100, "mae") as show:
        for epoch in range(1, 101):
            now += 1.0
            show.epoch({**RECORD, "epoch": epoch}, 0.125)
    shown = [int(line.split("epoch ")[1].split("/")[0]) for line in capsys.readouterr().out.splitlines()]
    assert shown == [1, 2, 3, *range(13, 100, 10), 100]


def test_the_time_left_follows_from_the_epochs_of_this_process(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    show = Display("run", 20, "mae")
    now += 1000.0  # preparation does not count
    with show:
        now += 60.0
        show.epoch({**RECORD, "epoch": 11}, 0.125)  # resumed after 10
    assert capsys.readouterr().out.splitlines()[-1].endswith("left 9m00s")


def test_quiet_says_nothing(capsys):
    with Display("run", 1, "mae", quiet=True) as show:
        show.say("hello")
        show.epoch(RECORD, 0.125)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_gets_a_table_unless_several_runs_share_it(live):
    show = Display("run", 9, "mae", live=live)
    show.console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with show:
        show.epoch(RECORD, 0.125)
    text = show.console.file.getvalue()
    assert "0.12500" in text
    assert ("┃" in text) is live


def test_durations():
    assert [duration(x) for x in (0.4, 59.4, 60, 200, 3600, 3725, 90000)] == [
        *("0s", "59s", "1m00s", "3m20s", "1h00m", "1h02m", "25h00m")
    ]


def test_the_result_is_one_line(capsys):
    summary = {"metric": "mae", "validation": 0.125, "test": 0.5, "epoch_selected": 7}
    Display("run", 9, "mae").result(summary, 61.0)
    line = "run: validation mae 0.12500 (epoch 7), test 0.50000, 1m01s of training"
    assert capsys.readouterr().out.splitlines() == [line]
