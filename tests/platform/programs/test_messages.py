"""Messages of a command: whatever it writes is taken as it was meant, or refused in one line."""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.client import _Reporting
from jestlab.platform.errors import UserError
from jestlab.platform.programs import protocol
from jestlab.platform.programs.context import RunContext
from jestlab.platform.programs.protocol import Channel

STEPS = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
VALUES = st.floats()


class Kept:
    """A recorder that keeps all calls in order; seconds, which the clock gives, are left out."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, seconds=None: self.calls.append((name, *given))


def context(recorder: Any) -> RunContext:
    return RunContext(
        directory=Path("/lab/run"), cache=Path("/lab/data"), seed=0, needs={}, recorder=recorder,
        record_artifact=recorder.artifact, stop_requested=lambda: False,
    )  # fmt: skip


CALLS = st.one_of(
    st.tuples(st.just("log"), STEPS, st.dictionaries(NAMES, VALUES, max_size=3)),
    st.tuples(
        st.just("evaluation"),
        STEPS,
        st.none() | STEPS,
        st.none() | st.floats(0, 1e300),
        st.dictionaries(NAMES.map(lambda name: "d/" + name.replace("/", "_")), VALUES, max_size=3),
    ),
    st.tuples(st.just("progress"), STEPS, STEPS),
)


@given(st.lists(CALLS, max_size=8))
def test_what_the_client_reports_is_what_the_run_records(calls):
    """Through a real pipe, whatever the numbers and names."""
    kept = Kept()
    with Channel(context(kept)) as channel:
        found = channel.environment
        run = _Reporting(
            found["JESTLAB_REPORTS"], found["JESTLAB_REPLIES"], seed=0, directory=Path("/lab/run"),
            resume=None, config={}, needs={},
        )  # fmt: skip
        for name, *arguments in calls:
            getattr(run, name)(*arguments)
        channel.drain(whole=True)
        os.close(run._reports)
        os.close(run._replies)
    assert repr(kept.calls) == repr([tuple(call) for call in calls])  # repr: NaN is NaN


@given(st.lists(CALLS, min_size=1, max_size=5), st.data())
def test_how_the_bytes_arrive_does_not_matter(calls, data):
    lines = []
    for name, *arguments in calls:
        keys = {
            "log": ("step", "metrics"),
            "evaluation": ("step", "examples_seen", "flops_total", "scores"),
            "progress": ("step", "total_steps"),
        }[name]
        lines.append(json.dumps({"type": name, **dict(zip(keys, arguments, strict=True))}))
    whole = "\n".join(lines).encode()  # no line break at the end
    kept = Kept()
    with Channel(context(kept)) as channel:
        with open(channel.environment["JESTLAB_REPORTS"], "wb", buffering=0) as stream:  # noqa: PTH123
            while whole:
                size = data.draw(st.integers(1, len(whole)))
                stream.write(whole[:size])
                whole = whole[size:]
                channel.read()
        channel.drain(whole=True)
    assert repr(kept.calls) == repr([tuple(call) for call in calls])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["step", "metrics", "scores", "examples_seen", "flops_total", "seconds", "total_steps"]
NEARLY = st.fixed_dictionaries(
    {"type": st.sampled_from(["log", "evaluation", "artifact", "progress", "flush"])},
    optional=dict.fromkeys([*KEYS, "name", "path", "id"], JSON),
)


def log(step: float = 1, **parts: Any) -> bytes:
    return json.dumps({"type": "log", "step": step, **parts}).encode()


@given(
    st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | NEARLY.map(json.dumps).map(str.encode)
)
def test_what_is_no_message_is_refused_in_one_line(line):
    try:
        message = protocol.parse(line)
    except ValueError as error:
        assert len(str(error).splitlines()) == 1
        assert " is not a valid message: " in str(error)
    else:  # what is taken, the store can hold
        for value in message.values():
            assert not isinstance(value, bool)
            assert not isinstance(value, int) or 0 <= value < 2**63


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"loss 0.5", "'loss 0.5' is not a valid message: not valid JSON: "),
        (b"[" * 100_000, "is not a valid message: not valid JSON: "),
        (b'{"type": "lgo"}', "type 'lgo' is unknown: did you mean 'log'?"),
        (b'{"step": 3}', "it has no type: expected log, evaluation, artifact, progress, phase, flush"),
        (
            log(step=1.5, metrics={}),
            "invalid step 1.5: expected a whole number from 0 to 9223372",
        ),
        (log(step=-1, metrics={}), "invalid step -1: expected a whole number from 0 to 9223372"),
        (log(loss=1), "metrics is missing"),
        (log(metrics={"a": 1}) + b" x", "not valid JSON: Extra data"),
        (log(metrics={"a": True}), "invalid value of 'a' True: expected a number"),
        (
            log(metrics={"a\0": 1}),
            r"invalid name 'a\x00': expected 1 to 300 characters without control",
        ),
        (log(metrics={"a\u2028b": "c"}), r"invalid value of 'a\u2028b' 'c': expected a number"),
        (log(metrics={"a" * 5_000: 1}), "1 to 300 characters"),
        (
            json.dumps({"type": "evaluation", "step": 1, "scores": {"a": 1}}).encode(),
            "name of a score 'a'",
        ),
    ],
)
def test_the_error_names_what_is_wrong(line, message):
    with pytest.raises(ValueError, match=r"is not a valid message") as caught:
        protocol.parse(line)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert len(str(caught.value).splitlines()) == 1


def test_a_path_that_no_disk_has_is_refused_in_a_short_line(tmp_path):
    kept = SimpleNamespace(artifact=lambda name, path: path.stat())
    with Channel(context(kept)) as channel, pytest.raises(UserError, match="File name too long") as error:
        line = json.dumps({"type": "artifact", "name": "weights", "path": "[\n" * 5_000})
        os.write(channel._reports_end, line.encode())
        channel.drain(whole=True)
    assert len(str(error.value)) < 1_100 and "\n" not in str(error.value)


def test_numbers_without_a_value():
    parsed = protocol.parse(log(metrics={"a": None, "b": math.nan, "c": math.inf, "d": 3}))
    assert repr(parsed["metrics"]) == "{'a': nan, 'b': nan, 'c': inf, 'd': 3.0}"


def test_a_line_without_end_is_refused_before_it_fills_the_memory():
    with Channel(context(Kept())) as channel:
        stream = os.open(channel.environment["JESTLAB_REPORTS"], os.O_WRONLY | os.O_NONBLOCK)
        with pytest.raises(UserError, match=r"message 1: .* is longer than 1,048,576 bytes"):
            for _ in range(1_000):
                os.write(stream, b"x" * 60_000)
                channel.read()
        os.close(stream)


def test_answers_that_nobody_reads_do_not_block_the_worker():
    with Channel(context(Kept())) as channel:
        stream = os.open(channel.environment["JESTLAB_REPORTS"], os.O_WRONLY | os.O_NONBLOCK)
        with pytest.raises(UserError, match="reads no answers"):
            for _ in range(10_000):
                os.write(stream, b'{"type": "flush"}\n')
                channel.read()
        channel.tell_stop()  # nor does this
        os.close(stream)
