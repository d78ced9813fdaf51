import importlib

import pytest

from benchmarks.registry import WORKLOADS, find_workloads


def test_every_workload_says_what_it_is():
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    for workload in WORKLOADS:
        assert workload.needs in ("cpu", "gpu", "any")
        assert len(workload.measures) > 40
        assert workload.minutes > 0


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_modules_take_their_arguments(workload, capsys):
    """``--help`` comes after all that the command gives: a wrong argument would end otherwise."""
    pytest.importorskip("triton")
    main = importlib.import_module(workload.module).main
    words = [*workload.arguments, "--out", "x.csv", *(["--device", "cpu"] if workload.needs == "any" else [])]
    words += ["--seconds", "1"] if workload.seconds else []
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert "--out" in capsys.readouterr().out


def test_by_name():
    assert [workload.name for workload in find_workloads(["training", "conv"])] == ["training", "conv"]
    assert find_workloads([]) == list(WORKLOADS)
    with pytest.raises(ValueError, match=r"workload: expected one of .*did you mean 'conv'"):
        find_workloads(["konv"])
