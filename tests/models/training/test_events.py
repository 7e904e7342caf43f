"""TensorBoard events of several attempts at a run, read by TensorBoard itself."""

from contextlib import closing

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from jestlab.models.training.events import EventWriter


@pytest.mark.parametrize(
    ("first_step", "expected"), [(0, {1: 0.5, 2: 0.5}), (3, {1: 9.0, 2: 9.0, 3: 9.0, 4: 0.5, 5: 0.5})]
)
def test_a_further_attempt_hides_what_it_replaces_even_within_a_second(tmp_path, first_step, expected):
    for begun, steps, value in (
        (0, range(1, 10), 9.0),
        (first_step, range(first_step + 1, first_step + 3), 0.5),
    ):
        with closing(EventWriter(tmp_path, {"seed": 3}, begun)) as events:
            for step in steps:
                events.scalars(step, {"loss": value})
    assert len(list(tmp_path.iterdir())) == 2
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert {event.step: event.value for event in read.Scalars("loss")} == expected
