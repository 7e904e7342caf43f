"""What scripts and functions report by: one interface, one signature, and one set of refusals."""

import inspect
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models.training.tracker import NullTracker
from jestlab.platform.client import Reporter, ScriptRun, _Reporting
from jestlab.platform.programs import protocol
from jestlab.platform.programs.context import RunContext
from jestlab.platform.programs.protocol import Channel

METHODS = ("log", "evaluation", "artifact", "progress")


class Kept:
    """A recorder that keeps all calls in order; seconds only if the program gave them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def keep(*given: Any, seconds: float | None = None) -> None:
            self.calls.append((name, *given, *([seconds] if seconds in (2.5, 3.0) else [])))

        return keep


def context(recorder: Any) -> RunContext:
    return RunContext(
        directory=Path("/lab/run"), cache=Path("/lab/data"), seed=0, needs={}, recorder=recorder,
        record_artifact=recorder.artifact, stop_requested=lambda: False, config={"seed": 0}, resume=None,
    )  # fmt: skip


@contextmanager
def script(kept: Kept) -> Iterator[Reporter]:
    """A script's `run`, below a worker."""
    with Channel(context(kept)) as channel:
        found = channel.environment
        run = _Reporting(
            found["JESTLAB_REPORTS"], found["JESTLAB_REPLIES"], seed=0, directory=Path("/lab/run"),
            resume=None, config={"seed": 0}, needs={},
        )  # fmt: skip
        try:
            yield run
        finally:
            os.close(run._reports)
            os.close(run._replies)
        channel.drain(whole=True)


@contextmanager
def function(kept: Kept) -> Iterator[Reporter]:
    """A function's context."""
    yield context(kept)


@contextmanager
def along(kept: Kept) -> Iterator[Reporter]:
    """A function's context in a process that computes along."""
    yield context(NullTracker())


@contextmanager
def by_hand(kept: Kept) -> Iterator[Reporter]:
    """A script that was started without jestlab."""
    yield ScriptRun(0, Path(), None, {}, {})


EVERYWHERE = pytest.mark.parametrize("start", [script, function, along, by_hand])

INTEGRAL = [
    2, 2.0, np.int8(2), np.uint64(2), np.float32(2), np.array(2), np.array(2.0), np.array([2]), jnp.array(2),
    jnp.array(2.0), jnp.bfloat16(2), Fraction(2), Decimal(2),
]  # fmt: skip

NO_AMOUNTS = [
    -1, -1.0, math.nan, math.inf, True, False, np.True_, np.array(True), jnp.array(True), "2", b"2", [2],
    10**400, 10**5_000, np.int64(-3), np.array([1, 2]), jnp.arange(3), np.datetime64("2026-01-01"), 1j,
]  # fmt: skip

WRONG_PHASES: list[Any] = ["training", "winddown", "Checkpoint", "", "a\nb", None, 3, [], {}]

NO_COUNTS = [*NO_AMOUNTS, 1.9, np.float64(1.5), jnp.array(1.5), 2**63, 2.0**63]


def each(values: list[Any]) -> Any:
    return pytest.mark.parametrize("value", values, ids=lambda value: f"{type(value).__name__}-{value!s:.20}")


@EVERYWHERE
@each(INTEGRAL)
def test_integral_numbers_of_every_kind_are_taken(start, value):
    kept = Kept()
    with start(kept) as run:
        run.log(value, {"a": value}, b=value)
        run.evaluation(value, value, value, {"d/m": value}, seconds=3.0)
        run.progress(value, value)
    if start in (script, function):
        assert kept.calls == [
            ("log", 2, {"a": 2.0, "b": 2.0}),
            ("evaluation", 2, 2, 2.0, {"d/m": 2.0}, 3.0),
            ("progress", 2, 2),
        ]
        assert [type(number) for number in kept.calls[1][1:4]] == [int, int, float]


def refuses(run: Reporter, method: str, *arguments: Any, **named: Any) -> None:
    with pytest.raises(ValueError, match=r"^invalid .*: expected ") as caught:
        getattr(run, method)(*arguments, **named)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 200


@EVERYWHERE
@pytest.mark.filterwarnings("ignore:Conversion of an array")
def test_what_cannot_be_stored_is_refused_in_one_line(start):
    kept = Kept()
    with start(kept) as run:
        for value in (*NO_COUNTS, None, {}):
            refuses(run, "log", value, loss=0.5)
            refuses(run, "evaluation", value, scores={"d/m": 0.5})
            refuses(run, "progress", value, 10)
            refuses(run, "progress", 1, value)
            if value is not None and not isinstance(value, dict):
                refuses(run, "evaluation", 1, value, scores={"d/m": 0.5})
        for value in NO_AMOUNTS:
            refuses(run, "evaluation", 1, flops_total=value)
            refuses(run, "evaluation", 1, seconds=value)
        for value in (True, np.True_, "0.5", [0.5], np.array([1.0, 2.0]), 1j, 10**400, {}):
            refuses(run, "log", 1, loss=value)
            refuses(run, "evaluation", 1, {"d/m": value})
        for name in ("", "a\nb", "a\0", "\ud800", "x" * 301, 3, None):
            refuses(run, "log", 1, {name: 0.5})
        for name in ("top1", "/top1", "toy/", 3):
            refuses(run, "evaluation", 1, {name: 0.5})
        for metrics in (0.5, [("loss", 0.5)], "loss"):
            refuses(run, "log", 1, metrics)
            refuses(run, "evaluation", 1, scores=metrics)
    assert kept.calls == []


@each([1.9, -1, True, "2", math.nan, 2**63])
def test_steps_of_phases_and_of_checkpoints_are_whole_numbers(value):
    with pytest.raises(ValueError, match=r"^invalid step .*: expected a whole number"):
        context(Kept()).phase("evaluation", value)
    with pytest.raises(ValueError, match=r"^invalid step .*: expected a whole number"):
        context(Kept()).saved(value)


@EVERYWHERE
def test_the_same_calls_report_the_same(start, monkeypatch):
    monkeypatch.chdir("/")
    kept = Kept()
    with start(kept) as run:
        run.log(10, loss=0.5)
        run.log(10, {"grad/norm": 2}, loss=0.25)
        run.log(step=11, metrics={"loss": None})
        run.evaluation(1, {"toy/top1": 0.5})
        run.evaluation(2, 64, scores={"toy/top1": 0.5}, seconds=2.5)
        run.evaluation(3, examples_seen=64, flops_total=1e6, scores={"toy/top1": math.inf})
        run.artifact("model", "lab/run/model.npz")
        run.progress(step=3, total_steps=10)
    if start in (script, function):
        assert repr(kept.calls) == repr(
            [
                ("log", 10, {"loss": 0.5}),
                ("log", 10, {"grad/norm": 2.0, "loss": 0.25}),
                ("log", 11, {"loss": math.nan}),
                ("evaluation", 1, None, None, {"toy/top1": 0.5}),
                ("evaluation", 2, 64, None, {"toy/top1": 0.5}, 2.5),
                ("evaluation", 3, 64, 1e6, {"toy/top1": math.inf}),
                ("artifact", "model", Path("/lab/run/model.npz")),
                ("progress", 3, 10),
            ]
        )


@EVERYWHERE
def test_phases_are_named_and_attributes_are_the_same(start):
    with start(Kept()) as run:
        for name in ("startup", "compilation", "evaluation", "checkpoint"):
            with run.phase(name):
                pass
        for wrong in WRONG_PHASES:
            with pytest.raises(ValueError, match=r"^invalid phase .*: expected one of startup, "):
                run.phase(wrong).__enter__()
        if start is not by_hand:
            assert (run.seed, run.config, run.resume, run.needs) == (0, {"seed": 0}, None, {})
            assert run.directory == Path("/lab/run")


@pytest.mark.parametrize("method", METHODS)
def test_there_is_one_signature(method):
    """Neither a script's run nor a function's context declares one of its own."""
    for kind in (ScriptRun, _Reporting, RunContext):
        assert inspect.signature(getattr(kind, method)) == inspect.signature(getattr(Reporter, method))
        assert method not in vars(kind)


@each([2, 2.0, 1.9, -1, True, "2", None, math.nan, math.inf, 2**63, 1e30])
def test_messages_in_json_are_taken_and_refused_alike(value):
    for key in ("step", "examples_seen", "flops_total", "seconds"):
        if value is None and key != "step":
            continue  # unknown
        given = {"step": 1, "scores": {"d/m": 0.5}, key: value}
        told: list[str | None] = []
        for report in (
            lambda given: protocol.parse(json.dumps({"type": "evaluation", **given}).encode()),
            lambda given: context(Kept()).evaluation(**given),
        ):
            try:
                report(given)
                told.append(None)
            except ValueError as error:
                told.append(str(error).rpartition(" is not a valid message: ")[2])
        assert told[0] == told[1]
        assert (told[0] is None) == ((value in (2, 2.0) and value is not True) or (
            key in ("flops_total", "seconds") and value in (1.9, 2**63, 1e30)
        ))  # fmt: skip
