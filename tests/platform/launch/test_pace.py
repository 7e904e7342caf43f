"""Speeds by the times at which runs reported, however often somebody looks."""

from datetime import datetime, timedelta

import pytest

from jestlab.platform.launch.display import Pace, Speeds
from jestlab.platform.store.records import Progress

BEGAN = datetime(2026, 11, 23, 12)


def report(step: int, seconds: float, first_step: int = 0, examples: int = 64, **changes) -> Progress:
    """A run of 1,000 steps, `seconds` after it began."""
    made = {"started_at": BEGAN, "reported_at": BEGAN + timedelta(seconds=seconds)} | changes
    return Progress(step, 1_000, {"examples_seen": float(examples * step)}, first_step, **made)


def test_by_one_report_it_is_the_speed_since_the_attempt_began():
    found = Pace().add(report(200, 20.0))
    assert found == Speeds(examples=640.0, steps=10.0, seconds_left=80.0)
    resumed = Pace().add(report(200, 20.0, first_step=100))
    assert resumed == Speeds(examples=320.0, steps=5.0, seconds_left=160.0)


def test_looking_often_changes_nothing_and_reports_do():
    pace = Pace()
    for _ in range(50):
        found = pace.add(report(200, 20.0))
    assert found.examples == 640.0
    pace.add(report(300, 25.0))
    for _ in range(50):
        found = pace.add(report(300, 25.0))
    assert found == Speeds(examples=1280.0, steps=20.0, seconds_left=35.0)


def test_it_is_over_the_last_reports():
    pace = Pace()
    pace.add(report(10, 100.0))
    for second in range(1, 40):
        found = pace.add(report(10 + 2 * second, 100.0 + second))
    assert found.steps == pytest.approx(2.0)


def test_nothing_is_known_before_the_first_report_and_after_a_new_beginning():
    pace = Pace()
    assert pace.add(Progress(0, None, {})) == Speeds()
    assert pace.add(report(0, 0.1)) == Speeds()
    assert pace.add(report(100, 10.0)).steps == 10.0
    again = BEGAN + timedelta(seconds=60)
    assert pace.add(report(100, 60.1, first_step=100, started_at=again)) == Speeds()
    assert pace.add(report(110, 61.0, first_step=100, started_at=again)).steps == 10.0
    # It went on from a checkpoint before the step at which it was.
    earlier = BEGAN + timedelta(seconds=90)
    assert pace.add(report(80, 95.0, first_step=110, started_at=earlier)) == Speeds()
    assert pace.add(report(90, 96.0, first_step=110, started_at=earlier)).steps == 10.0


def test_a_program_without_examples_or_total_has_steps_alone():
    progress = Progress(50, None, {}, 0, BEGAN, BEGAN + timedelta(seconds=10))
    assert Pace().add(progress) == Speeds(examples=None, steps=5.0, seconds_left=None)
