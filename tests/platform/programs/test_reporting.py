"""Reports of scripts and functions: one interface, one protocol, and the same errors."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform import client
from jestlab.platform.client import Reporter, ScriptRun, _Reporting
from jestlab.platform.errors import UserError
from jestlab.platform.programs.context import RunContext
from jestlab.platform.programs.protocol import Channel


class Calls:
    """A recorder that keeps all calls in order; seconds only if the program gave them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def keep(*arguments: Any, seconds: float | None = None) -> None:
            self.calls.append((name, *arguments, *([seconds] if seconds in (2.5, 3.0) else [])))

        return keep


def context(recorder: Any) -> RunContext:
    return RunContext(
        directory=Path("/lab/run"), cache=Path("/lab/data"), seed=0, needs={}, recorder=recorder,
        record_artifact=recorder.artifact, should_stop=lambda: False, config={"seed": 0}, resume=None,
    )  # fmt: skip


@contextmanager
def script(recorder: Calls) -> Iterator[Reporter]:
    """A script's `run`, which reports to a worker."""
    with Channel(context(recorder)) as channel:
        paths = channel.environment
        run = _Reporting(
            paths["JESTLAB_REPORTS"], paths["JESTLAB_REPLIES"], seed=0, directory=Path("/lab/run"),
            resume=None, config={"seed": 0}, needs={},
        )  # fmt: skip
        try:
            yield run
        finally:
            os.close(run._reports)
            os.close(run._replies)
        channel.drain(whole=True)


@contextmanager
def function(recorder: Calls) -> Iterator[Reporter]:
    """A function's context."""
    yield context(recorder)


@contextmanager
def by_hand(recorder: Calls) -> Iterator[Reporter]:
    """A script that was started without jestlab."""
    yield ScriptRun(0, Path(), None, {}, {})


EVERYWHERE = pytest.mark.parametrize("start", [script, function, by_hand])
INTEGRAL = [
    2, 2.0, np.int8(2), np.uint64(2), np.array(2.0), np.array([2]), jnp.array(2), jnp.bfloat16(2),
    Fraction(2), Decimal(2),
]  # fmt: skip
NOT_AMOUNTS = [
    -1, -1.0, math.nan, math.inf, True, np.True_, jnp.array(True), "2", b"2", [2], 10**400, 10**5_000,
    np.int64(-3), np.array([1, 2]), np.datetime64("2026-01-01"), 1j,
]  # fmt: skip
NOT_COUNTS = [*NOT_AMOUNTS, 1.9, np.float64(1.5), jnp.array(1.5), 2**63, 2.0**63]


def each(values: list[Any]) -> Any:
    return pytest.mark.parametrize("value", values, ids=lambda value: f"{type(value).__name__}-{value!s:.20}")


@EVERYWHERE
@each(INTEGRAL)
def test_whole_numbers_of_every_type_are_accepted(start, value):
    recorder = Calls()
    with start(recorder) as run:
        run.log(value, {"a": value}, b=value)
        run.evaluation(value, value, value, {"d/m": value}, seconds=3.0)
        run.progress(value, value)
    if start is not by_hand:
        assert recorder.calls == [
            ("log", 2, {"a": 2.0, "b": 2.0}),
            ("evaluation", 2, 2, 2.0, {"d/m": 2.0}, 3.0),
            ("progress", 2, 2),
        ]
        assert [type(number) for number in recorder.calls[1][1:4]] == [int, int, float]


def check_invalid(run: Reporter, method: str, *arguments: Any, **named: Any) -> None:
    with pytest.raises(ValueError, match=r"^invalid .*: expected ") as error:
        getattr(run, method)(*arguments, **named)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@EVERYWHERE
@pytest.mark.filterwarnings("ignore:Conversion of an array")
def test_invalid_values_are_one_line_errors(start):
    recorder = Calls()
    with start(recorder) as run:
        for value in (*NOT_COUNTS, None, {}):
            check_invalid(run, "log", value, loss=0.5)
            check_invalid(run, "evaluation", value, scores={"d/m": 0.5})
            check_invalid(run, "progress", 1, value)
            if value is not None and not isinstance(value, dict):
                check_invalid(run, "evaluation", 1, value, scores={"d/m": 0.5})
        for value in NOT_AMOUNTS:
            check_invalid(run, "evaluation", 1, flops_total=value)
            check_invalid(run, "evaluation", 1, seconds=value)
        for value in (True, "0.5", [0.5], np.array([1.0, 2.0]), 1j, 10**400, {}):
            check_invalid(run, "log", 1, loss=value)
        for name in ("", "a\nb", "a\0", "\ud800", "x" * 301, 3, None):
            check_invalid(run, "log", 1, {name: 0.5})
        for name in ("top1", "/top1", "toy/", 3):
            check_invalid(run, "evaluation", 1, {name: 0.5})
        for metrics in (0.5, [("loss", 0.5)], "loss"):
            check_invalid(run, "log", 1, metrics)
    assert recorder.calls == []


@each([1.9, -1, True, "2", math.nan, 2**63])
def test_steps_of_phases_and_checkpoints_are_whole_numbers(value):
    check_invalid(context(Calls()), "phase", "evaluation", value)
    check_invalid(context(Calls()), "saved", value)


@EVERYWHERE
def test_phases_are_checked_and_attributes_are_the_same(start):
    with start(Calls()) as run:
        for name in client.PHASES:
            with run.phase(name):
                pass
        wrong: Any
        for wrong in ("training", "Checkpoint", "", "a\nb", None, 3, []):
            with pytest.raises(ValueError, match=r"^invalid phase .*: expected one of startup, "):
                run.phase(wrong).__enter__()
        if start is not by_hand:
            assert (run.seed, run.config, run.resume, run.needs) == (0, {"seed": 0}, None, {})
            assert run.directory == Path("/lab/run")


# ---- the protocol

STEPS = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
METRICS = st.dictionaries(NAMES, st.floats(), max_size=3)
SCORES = st.dictionaries(NAMES.map(lambda name: "d/" + name.replace("/", "_")), st.floats(), max_size=3)
CALLS = st.one_of(
    st.tuples(st.just("log"), STEPS, METRICS),
    st.tuples(st.just("evaluation"), STEPS, st.none() | STEPS, st.none() | st.floats(0, 1e300), SCORES),
    st.tuples(st.just("progress"), STEPS, STEPS),
)
FIELDS = {
    "log": ("step", "metrics"),
    "evaluation": ("step", "examples_seen", "flops_total", "scores"),
    "progress": ("step", "total_steps"),
}


@given(st.lists(CALLS, max_size=8))
def test_the_worker_records_the_reports_of_a_script(calls):
    recorder = Calls()
    with script(recorder) as run:
        for name, *arguments in calls:
            getattr(run, name)(*arguments)
    assert repr(recorder.calls) == repr([tuple(call) for call in calls])  # repr: NaN is NaN


@given(st.lists(CALLS, min_size=1, max_size=5), st.data())
def test_messages_can_arrive_in_pieces(calls, data):
    lines = [
        json.dumps({"type": name, **dict(zip(FIELDS[name], arguments, strict=True))})
        for name, *arguments in calls
    ]
    rest = "\n".join(lines).encode()  # without a line break at the end
    recorder = Calls()
    with Channel(context(recorder)) as channel:
        with open(channel.environment["JESTLAB_REPORTS"], "wb", buffering=0) as stream:  # noqa: PTH123
            while rest:
                size = data.draw(st.integers(1, len(rest)))
                stream.write(rest[:size])
                rest = rest[size:]
                channel.read()
        channel.drain(whole=True)
    assert repr(recorder.calls) == repr([tuple(call) for call in calls])


def log(step: float = 1, **parts: Any) -> bytes:
    return json.dumps({"type": "log", "step": step, **parts}).encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"loss 0.5", "'loss 0.5' is not a valid message: not valid JSON"),
        (b"[" * 50_000, "not valid JSON"),
        (log(metrics={"a": 1}) + b" x", "not valid JSON"),
        (b'{"type": "lgo"}', "type 'lgo' is unknown: did you mean 'log'?"),
        (b'{"step": 3}', "no type: expected log, evaluation, artifact, progress, phase, flush"),
        (log(step=1.5, metrics={}), "invalid step 1.5: expected a whole number"),
        (log(loss=1), "metrics is missing"),
        (log(metrics={}, loss=1), "key 'loss' is unknown"),
        (log(metrics={"a": True}), "invalid value of 'a' True: expected a number"),
        (log(metrics={"a\u2028b": "c"}), r"invalid value of 'a\u2028b' 'c': expected a number"),
        (log(metrics={"a" * 5_000: 1}), "1 to 300 characters"),
        (b'{"type": "evaluation", "step": 1, "scores": {"a": 1}}', "name of a score 'a'"),
        (
            b'{"type": "evaluation", "step": 1, "scores": null, "examples_seen": {"a/b": 1}}',
            "scores is missing",
        ),
        (b'{"type": "artifact", "name": "a", "path": ""}', "invalid path"),
    ],
)
def test_errors_name_the_problem(line, message):
    with pytest.raises(UserError, match=r"^message 1: .* is not a valid message") as error:
        received(line)
    assert message in str(error.value)
    assert len(str(error.value)) < 600 and len(str(error.value).splitlines()) == 1


def received(line: bytes, recorder: Any = None, times: int = 1) -> Channel:
    """Send a line to a worker several times, and let it process them."""
    with Channel(context(recorder or Calls())) as channel:
        for _ in range(times):
            os.write(channel._reports_end, line)
            channel.read()
        channel.drain(whole=True)
        return channel


def test_missing_numbers():
    recorder = Calls()
    received(log(metrics={"a": None, "b": math.nan, "c": math.inf, "d": 3}), recorder)
    assert repr(recorder.calls[0][2]) == "{'a': nan, 'b': nan, 'c': inf, 'd': 3.0}"


def test_limits_are_short_errors():
    long_path = {"type": "artifact", "name": "weights", "path": "[\n" * 5_000}
    recorder = SimpleNamespace(artifact=lambda name, path: path.stat())
    for line, times, message in (
        (json.dumps(long_path).encode(), 1, "File name too long"),
        (b"x" * 60_000, 1_000, r"message 1: .* is longer than 1,048,576 bytes"),
    ):
        with pytest.raises(UserError, match=message) as error:
            received(line, recorder if times == 1 else Calls(), times)
        assert len(str(error.value)) < 600 and "\n" not in str(error.value)


def test_unread_answers_do_not_block_the_worker():
    with Channel(context(Calls())) as channel:
        with pytest.raises(UserError, match="reads no answers"):
            for _ in range(10_000):
                channel._process(b'{"type": "flush"}')
        channel.tell_stop()


# ---- without a worker

SCRIPT = """
import sys; sys.path.insert(0, '.'); import client
run = client.run()
assert (run.seed, run.resume, run.config, run.needs) == (0, None, {}, {})
run.log(4, {"grad/norm": 2}, loss=0.25)
run.evaluation(4, 64, 1e6, {"toy/top1": 0.5})
client.time.perf_counter = iter(range(100)).__next__
with run.phase("checkpoint"):
    with run.phase("evaluation"):
        pass
run.artifact("model", "model.npz")
run.flush()
print(run.stop_requested(), run.directory)
"""


def test_a_copy_of_the_client_prints_without_jestlab(tmp_path):
    shutil.copy(str(client.__file__), tmp_path / "client.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
    command = [sys.executable, "-I", "-S", "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "log: step 4, grad/norm 2.0, loss 0.25",
        "evaluation: step 4, examples_seen 64, flops_total 1000000.0, toy/top1 0.5",
        "phase: name evaluation, seconds 1.0",
        "phase: name checkpoint, seconds 2.0",
        f"artifact: name model, path {tmp_path}/model.npz",
        f"False {tmp_path}",
    ]


def test_a_missing_worker_is_reported(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    pipe, config = "/proc/1/fd/999999", str(tmp_path / "config.json")
    values = {"REPORTS": pipe, "REPLIES": pipe, "SEED": "0", "RUN_DIR": str(tmp_path), "RESUME": ""}
    for name, value in (values | {"RUN_CONFIG": config, "NEEDS": "{}"}).items():
        monkeypatch.setenv(f"JESTLAB_{name}", value)
    with pytest.raises(ConnectionError, match="worker has ended"):
        client.run()
