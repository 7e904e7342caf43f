"""Reports of scripts and functions: one interface, one protocol, the same errors, and seconds of training."""

import ast
import itertools
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
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import plans_support as plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform import client
from jestlab.platform.client import Reporter, ScriptRun, _Reporting
from jestlab.platform.errors import UserError
from jestlab.platform.programs import context as programs_context
from jestlab.platform.programs.command_run import Channel
from jestlab.platform.programs.context import RunContext


class Recorder:
    """Keeps all calls in order, and the seconds of evaluations by step."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.seconds: dict[int, float] = {}

    def __getattr__(self, name: str) -> Any:
        def keep(*arguments: Any, seconds: float | None = None) -> None:
            self.calls.append((name, *arguments))
            if name == "evaluation":
                self.seconds[arguments[0]] = math.nan if seconds is None else seconds

        return keep

    def artifact(self, name: str, path: Path) -> None:
        path.stat()


def context(recorder: Any = None, **parts: Any) -> RunContext:
    return RunContext(
        directory=Path("/lab/run"), cache=Path("/lab/data"), seed=0, needs={},
        recorder=cast(Any, recorder or Recorder()), should_stop=lambda: False, config={"seed": 0}, **parts,
    )  # fmt: skip


@contextmanager
def script(recorder: Recorder) -> Iterator[Reporter]:
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
def function(recorder: Recorder) -> Iterator[Reporter]:
    """A function's context."""
    yield context(recorder)


@contextmanager
def by_hand(recorder: Recorder) -> Iterator[Reporter]:
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


@EVERYWHERE
@pytest.mark.parametrize("value", INTEGRAL, ids=lambda value: type(value).__name__)
def test_whole_numbers_of_every_type_are_accepted(start, value):
    recorder = Recorder()
    with start(recorder) as run:
        run.log(value, {"a": value}, b=value)
        run.evaluation(value, value, value, {"d/m": value}, seconds=3.0)
        run.progress(value, value)
    if start is not by_hand:
        log, evaluation, progress = recorder.calls
        assert (log, progress) == (("log", 2, {"a": 2.0, "b": 2.0}), ("progress", 2, 2))
        assert (evaluation, recorder.seconds) == (("evaluation", 2, 2, 2.0, {"d/m": 2.0}), {2: 3.0})
        assert [type(number) for number in evaluation[1:4]] == [int, int, float]


def check_invalid(run: Reporter, method: str, *arguments: Any, **named: Any) -> None:
    with pytest.raises(ValueError, match=r"^invalid .*: expected ") as error:
        getattr(run, method)(*arguments, **named)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@EVERYWHERE
@pytest.mark.filterwarnings("ignore:Conversion of an array")
def test_invalid_values_are_one_line_errors(start):
    recorder = Recorder()
    with start(recorder) as run:
        for value in (*NOT_COUNTS, None, {}):
            check_invalid(run, "log", value, loss=0.5)
            check_invalid(run, "evaluation", value, scores={"d/m": 0.5})
            check_invalid(run, "progress", 1, value)
            if value is not None and not isinstance(value, dict):
                check_invalid(run, "evaluation", 1, value, scores={"d/m": 0.5})
            if start is function and value is not None:
                check_invalid(run, "phase", "evaluation", value)
                check_invalid(run, "saved", value)
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


@EVERYWHERE
def test_phases_are_checked_and_attributes_are_the_same(start):
    with start(Recorder()) as run:
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


def test_a_script_started_by_hand_continues_after_its_output_is_closed():
    """As in `python script.py | head -1`."""
    code = """if 1:
        import sys
        from jestlab.platform import client
        run = client.run()
        run.log(0, loss=0.5)
        sys.stdin.read()
        for step in range(1, 10_000):
            run.log(step, loss=0.5)
        print("end", file=sys.stderr)"""
    pipe = subprocess.PIPE
    script = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert script.stdout is not None and script.stdout.readline() == "log: step 0, loss 0.5\n"
    script.stdout.close()
    script.stdout = None
    _, errors = script.communicate()
    assert (errors, script.returncode) == ("end\n", 0)


# ---- seconds of training: since the program began, and before that of earlier attempts

EARLY = {3: 30.0, 5: 50.0, 6: 60.0, 9: 90.0}
LATE = {0: 300.0, 50: 350.0, 100: 400.0}  # step 0 was evaluated, after a long start


def starts_over(run: Any) -> None:
    run.clock.resumed.is_empty = True


@pytest.mark.parametrize(
    ("earlier", "first", "seconds"),
    [
        ({}, None, {1: 1, 2: 2}),
        # It went on after step 5, from a checkpoint.
        (EARLY, lambda run: run.log(6, {"loss": 1.0}), {7: 51, 8: 52}),
        (EARLY, lambda run: run.progress(5, 10), {7: 51, 8: 52}),
        (EARLY, lambda run: run.evaluation(6, scores={}), {7: 52, 8: 53}),
        ({6: math.nan}, None, {7: math.nan}),  # unknown stays unknown
        (LATE, starts_over, {0: 1, 1: 2, 2: 3}),
        (LATE, starts_over, {100: 1, 200: 2}),
        (LATE, starts_over, {0: 1, 100: 2, 200: 3}),
        (LATE, None, {0: 1, 60: 352, 70: 353}),
    ],
)
def test_seconds_go_on_where_the_attempt_resumed(monkeypatch, earlier, first, seconds):
    clock = SimpleNamespace(perf_counter=itertools.count(1_000.0).__next__)  # each look is a second later
    monkeypatch.setattr(programs_context, "time", clock)
    recorder = Recorder()
    run = context(recorder, earlier_seconds=earlier)
    run.log(0, {"size": 3.0})  # holds for the whole run
    if first is not None:
        first(run)
    for step in seconds:
        run.evaluation(step, scores={"toy/x": 1.0})
    assert {step: recorder.seconds[step] for step in seconds} == pytest.approx(seconds, nan_ok=True)


def test_the_store_knows_the_seconds_of_each_evaluation(store, tmp_path):
    planned = plans.run("alone")
    plans.record(store, plans.plan(planned))
    attempt = plans.begun(store, planned, tmp_path)
    for step, seconds in ((2, 1.5), (4, 3.0), (6, None)):
        attempt.evaluation(step, None, None, {"toy/x": 0.5, "toy/y": 0.5}, seconds=seconds)
    attempt.flush()
    expected = pytest.approx({2: 1.5, 4: 3.0, 6: math.nan}, nan_ok=True)
    assert store.seconds_by_step(planned.fingerprint) == expected


# ---- the protocol


class Messages(ScriptRun):
    """Writes down what a script sends."""

    def __init__(self) -> None:
        super().__init__(0, Path.cwd(), None, {}, {})
        self.lines: list[str] = []

    def _send(self, message: dict[str, Any]) -> None:
        self.lines.append(json.dumps(message))


STEPS = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
METRICS = st.dictionaries(NAMES, st.floats(), max_size=3)
SCORES = st.dictionaries(NAMES.map(lambda name: "d/" + name.replace("/", "_")), st.floats(), max_size=3)
CALLS = st.one_of(
    st.tuples(st.just("log"), STEPS, METRICS),
    st.tuples(st.just("evaluation"), STEPS, st.none() | STEPS, st.none() | st.floats(0, 1e300), SCORES),
    st.tuples(st.just("progress"), STEPS, STEPS),
)


@given(st.lists(CALLS, min_size=1, max_size=5), st.data())
def test_the_worker_records_messages_that_arrive_in_pieces(calls, data):
    messages, recorder = Messages(), Recorder()
    for name, *arguments in calls:
        getattr(messages, name)(*arguments)
    rest = "\n".join(messages.lines).encode()  # without a line break at the end
    with Channel(context(recorder)) as channel:
        with open(channel.environment["JESTLAB_REPORTS"], "wb", buffering=0) as stream:  # noqa: PTH123
            while rest:
                size = data.draw(st.integers(1, len(rest)))
                stream.write(rest[:size])
                rest = rest[size:]
                channel.read()
        channel.drain(whole=True)
    assert repr(recorder.calls) == repr(calls)  # repr: NaN is NaN


def log(step: float = 1, **parts: Any) -> bytes:
    return json.dumps({"type": "log", "step": step, **parts}).encode()


def received(line: bytes) -> list[Any]:
    """Send a line to a worker, and let it process it; what it records."""
    recorder = Recorder()
    with Channel(context(recorder)) as channel:
        for start in range(0, len(line), 1 << 16):
            os.write(channel._reports_end, line[start : start + (1 << 16)])
            channel.read()
        channel.drain(whole=True)
    return recorder.calls


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
        (b'{"type": "evaluation", "step": 1, "scores": null}', "scores is missing"),
        (b'{"type": "artifact", "name": "a", "path": ""}', "invalid path"),
        (b'{"type": "artifact", "name": "a", "path": "%s"}' % (b"[\\n" * 5_000), "File name too long"),
        (b"x" * 2_000_000, "is longer than 1,048,576 bytes"),
    ],
    ids=range(16),
)
def test_errors_are_short_and_name_the_problem(line, message):
    with pytest.raises(UserError, match=r"^message 1: ") as error:
        received(line)
    assert message in str(error.value)
    assert len(str(error.value)) < 600 and len(str(error.value).splitlines()) == 1


def test_missing_numbers():
    [(_, _, metrics)] = received(log(metrics={"a": None, "b": math.nan, "c": math.inf, "d": 3}))
    assert repr(metrics) == "{'a': nan, 'b': nan, 'c': inf, 'd': 3.0}"


def test_unread_answers_do_not_block_the_worker():
    with Channel(context()) as channel:
        with pytest.raises(UserError, match="reads no answers"):
            for _ in range(10_000):
                channel._process(b'{"type": "flush"}')
        channel.send_stop()


# ---- without a worker

SCRIPT = """
from jestlab.platform import client
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


def test_the_client_alone_prints_without_a_worker(tmp_path):
    (tmp_path / "jestlab" / "platform").mkdir(parents=True)
    shutil.copy(str(client.__file__), tmp_path / "jestlab" / "platform" / "client.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
    environment["PYTHONPATH"] = str(tmp_path)
    command = [sys.executable, "-S", "-c", SCRIPT]  # without site-packages
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "log: step 4, grad/norm 2.0, loss 0.25",
        "evaluation: step 4, examples_seen 64, flops_total 1000000.0, toy/top1 0.5",
        "phase: name evaluation, seconds 1.0",
        "phase: name checkpoint, seconds 2.0",
        f"artifact: name model, path {tmp_path}/model.npz",
        f"False {tmp_path}",
    ]


def test_the_client_runs_on_python_3_9_with_only_the_standard_library():
    tree = ast.parse(Path(str(client.__file__)).read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    # Annotations aren't evaluated; unions of types elsewhere need Python 3.10.
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    tested = [call.args[1] for call in calls if ast.unparse(call.func) == "isinstance"]
    assert tested and not [kind for kind in tested if isinstance(kind, ast.BinOp)]


def test_a_missing_worker_is_reported(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    pipe, config = "/proc/1/fd/999999", str(tmp_path / "config.json")
    values = {"REPORTS": pipe, "REPLIES": pipe, "SEED": "0", "RUN_DIR": str(tmp_path), "RESUME": ""}
    for name, value in (values | {"RUN_CONFIG": config, "NEEDS": "{}"}).items():
        monkeypatch.setenv(f"JESTLAB_{name}", value)
    with pytest.raises(ConnectionError, match="worker has ended"):
        client.run()
