"""Plans made by hand, for tests of what comes after the plan."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_support import BENCHMARK, TOWERS

from jestlab.analysis.costs import Cost
from jestlab.analysis.files import write_whole
from jestlab.models.data.tars import TarWriter
from jestlab.models.training.phases import ResumePoint, Spent
from jestlab.platform.planning.identity import fingerprint
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.planning.recording import record as record
from jestlab.platform.programs import Price
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store import claims, leases, provenance
from jestlab.platform.store.attempt import WorkerAttempt
from jestlab.platform.store.records import RunState, RunSummary
from jestlab.platform.store.store import Store

HERE = provenance.Provenance("host", "2 cores", {"python": "3"}, None, None, {"JAX_PLATFORMS": "cpu"})
COST = Cost(
    image_tower=2e6, text_tower=7.5e5, loss=2.5e5, scoring=7.5e5, selection=2.5e5, reference_scoring=5e5
)
PRICE = Price(COST, examples=100)
CACHE = Price(Cost(scoring=1e6, reference_scoring=5e5), examples=0)
"""Of a run that trains nothing."""

TINY: dict[str, Any] = {
    "model": TOWERS,
    "data": {"train": {"examples": 256, "image_size": 16, "shard_size": 128}, "benchmark": BENCHMARK},
    "schedule": {"batch_size": 16, "examples_seen": 64},
    "evaluation": {"points": 1, "shots": 2, "shot_seeds": 1},
}
"""The base of a study whose runs train in a moment."""

TINY_DIAGNOSIS: dict[str, Any] = {
    "program": "diagnose",
    "batch_size": 16,
    "filtering_ratios": [0.8],
    "chunks": [4],
    "joint_chunks": 4,
    "sweeps": 1,
    "draws": 2,
    "matrix_size": 8,
}
"""A run, without its learner and its reference."""

ON_SQLITE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
"""A test whose subject is Python: one kind of database is enough."""


def run(
    name: str,
    program: str = "toy_programs:loop",
    config: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    needs: Mapping[str, str] | None = None,
    point: Mapping[str, Any] | None = None,
    price: Price | None = PRICE,
) -> PlannedRun:
    """A run with the fingerprint that a plan would give it; its config holds all that decides its result."""
    needs, point = needs or {}, point or {}
    config = {**(config or {}), **point, **({"seed": seed} if seed else {})}
    return PlannedRun(
        fingerprint=fingerprint(program, 1, config, needs),
        name=name,
        label=" ".join([name, *(f"{key}={value}" for key, value in point.items())]),
        point=point,
        seed=seed,
        program=program,
        config=config,
        needs=needs,
        price=price,
    )


def claimed(store: Store, run: PlannedRun | RunSummary, lease_seconds: float = 90.0) -> int:
    """Claim a recorded run for an attempt, as a launcher does; its number."""
    terms = claims.ClaimTerms(leases.enter_launcher(store, "nobody:0:0"), "local", 0, lease_seconds)
    claim = claims.claim(store, run.fingerprint, f"{run.directory}/log.txt", terms)
    assert claim is not None
    return claim.number


def move(store: Store, run: PlannedRun, state: RunState, reason: str | None = None) -> None:
    with store.writing() as connection:
        leases.move(connection, run.fingerprint, state, reason)


def end(store: Store, *ending: Any, **more: Any) -> bool:
    """End one attempt; arguments are those of `leases.Ending`."""
    return bool(leases.end_all(store, [leases.Ending(*ending, **more)]))


def begun(
    store: Store,
    run: PlannedRun | RunSummary,
    directory: Path | None = None,
    lease_seconds: float = 90.0,
    spent: Spent | None = None,
    may_resume: bool = False,
) -> WorkerAttempt:
    """Claim a recorded run and take its attempt up, as launcher and worker do."""
    number, resumed = claimed(store, run, lease_seconds), ResumePoint()
    resumed.is_first, resumed.is_empty = number == 1, not may_resume
    attempt = WorkerAttempt(
        store,
        run.fingerprint,
        number,
        root=directory or Path("nowhere"),
        directory=directory or Path("nowhere"),
        provenance=HERE,
        handle="host:1:2:log.txt",
        spent=None if spent is None else lambda: spent,
        resumed=resumed,
    )
    attempt.catch_up()
    return attempt


def plan(*runs: PlannedRun, name: str = "toy", **parts: Any) -> Plan:
    study = {"name": name, "question": "Does it run?", "scale": "smoke", "runs": {"any": {}}}
    return Plan(StudySpec.parse(study | parts), runs)


def reference_and_two() -> Plan:
    reference = run("reference", config={"steps": 10})
    joint = run("joint", config={"steps": 20}, needs={"selection.reference": reference.fingerprint})
    uniform = run("uniform", config={"steps": 30}, point={"ratio": 0.5})
    return plan(reference, joint, uniform)


def blank_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pages of reports blank: to draw one takes seconds."""

    def build(page: object, folder: Path) -> list[Path]:
        return [write_whole(folder / "report.html", "")]

    monkeypatch.setattr("jestlab.analysis.report.gather", lambda *_, **__: None)
    monkeypatch.setattr("jestlab.analysis.report.build", build)


def write_shard(folder: Path, *captions: str) -> str:
    """Write a folder with one shard of pairs, whose images can't be decoded; its path."""
    folder.mkdir()
    with TarWriter(folder / "00000.tar") as tar:
        for number, caption in enumerate(captions):
            tar.add(f"{number:03}.jpg", b"image")
            tar.add(f"{number:03}.txt", caption.encode())
    return str(folder)


def function_calls(function: Callable[[], object]) -> int:
    """Count the function calls that a call makes, C functions included: the same on every machine."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
