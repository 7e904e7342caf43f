"""A few inputs of each fuzzing target; `make fuzz` tries many more, guided by coverage."""

import random
from pathlib import Path

import pytest
from targets import TARGETS, refusing

from fuzz import Counted, mutated

CASES = {"adoptions": 40, "archives": 15, "specs": 30, "weights": 30, "protocol": 50}


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", TARGETS)
def test_reads_or_refuses_any_input_in_one_line(
    name: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seeds, run = TARGETS[name](tmp_path)
    for seed in seeds:
        run(seed)
    counted, rng = Counted(run, None), random.Random(0)
    for _ in range(times * CASES[name]):
        counted(mutated(seeds, rng))
    assert {place: case[:500] for place, case in counted.crashes.items()} == {}
    assert counted.cases == times * CASES[name]


def test_a_crash_is_kept_once_for_each_place(tmp_path: Path) -> None:
    def run(case: bytes) -> None:
        with refusing(ValueError):
            if case == b"good":
                raise ValueError("one line")
            if case == b"long":
                raise ValueError("two\nlines")
        if case == b"bad":
            raise KeyError(case)

    counted = Counted(run, tmp_path)
    for case in (b"good", b"bad", b"bad", b"long"):
        counted(case)
    assert sorted(counted.crashes.values()) == [b"bad", b"long"] and counted.cases == 4
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"bad", b"long"]
