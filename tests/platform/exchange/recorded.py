"""A study with all that its runs can hold, as workers record it, and results that no store has held."""

import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import plans_support as plans

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.export import ExportedRun
from jestlab.platform.exchange.source_run import Curves as Points
from jestlab.platform.exchange.source_run import Score
from jestlab.platform.planning.plan import RunPlace
from jestlab.platform.store.annotations import Subject, add_note, add_tags
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

CONFIG = {
    "steps": 20, "lr": 0.1, "flip": True, "warmup": None, "optimizer": "adam λ", "empty": {},
    "model": {"width": 64, "layers": [1, "two", None], "head": {"bias": False}},
}  # fmt: skip
JOINT = plans.run("joint", config=CONFIG, point={"ratio": 0.5})
JOINT_1 = plans.run("joint", config=CONFIG, point={"ratio": 0.5}, seed=1)
BROKEN = plans.run("broken", config={"steps": 3})
WAITING = plans.run("waiting", config={"steps": 4})

LABEL = JOINT.label
"""Of the run that has everything; in the study it stands as `baseline`, too."""

Curves = Mapping[str, list[tuple[int, str]]]
"""Name → steps and values; as texts, since NaN does not equal itself."""

METRICS: Curves = {
    "loss": [(1, "2.0"), (2, "nan"), (3, "inf")],
    "loss/train": [(1, repr(1 / 3)), (2, "0.5")],
}
SCORES: Curves = {"toy/score": [(2, "0.25"), (3, "0.75")], "toy/top 1": [(2, "nan")]}
EFFORTS: Curves = {
    "examples_seen": [(2, "20.0"), (3, "3000000000.0")],
    "flops_total": [(3, "1.5e+21")],
    "seconds": [(3, "9.5")],
}
CURVES = {**METRICS, **SCORES, **EFFORTS}

TAGS = ["good=yes", "keep"]
NOTES = ["First λ.", "Second:\ntwo lines."]


def record(store: Store) -> None:
    """Record two studies: `toy` with all runs, of which `other` has one, too."""
    joint = replace(JOINT, aliases=(RunPlace("baseline", "baseline", {}),))
    plans.record(store, plans.plan(joint, JOINT_1, BROKEN, WAITING))
    plans.record(store, plans.plan(BROKEN, name="other"))
    attempt = plans.begun(store, JOINT)
    attempt.log(1, {"loss": 2.0, "loss/train": 1 / 3})
    attempt.log(2, {"loss": math.nan, "loss/train": 0.5})
    attempt.log(3, {"loss": math.inf})
    attempt.evaluation(2, 20, None, {"toy/score": 0.25, "toy/top 1": math.nan})
    attempt.evaluation(3, 3 * 10**9, 1.5e21, {"toy/score": 0.75}, seconds=9.5)
    attempt.progress(3, 20)
    attempt.complete()
    attempt = plans.begun(store, JOINT_1)
    attempt.log(1, {"loss": -math.inf})
    attempt.complete()
    plans.begun(store, BROKEN).fail("ValueError: no")
    add_tags(store, Subject(fingerprint=JOINT.fingerprint), TAGS)
    for note in NOTES:
        add_note(store, Subject(fingerprint=JOINT.fingerprint), note, "Ada")


def result(
    label: str = "joint",
    seed: int = 0,
    metrics: Mapping[str, Sequence[float]] | None = None,
    scores: Iterable[Score] = (),
    **parts: Any,
) -> ExportedRun:
    """A result with these parts; the values of a metric are at the steps 0, 1, …"""
    whole: dict[str, Any] = {
        "experiment": "toy", "question": "Does it run?", "run": "joint", "label": label, "seed": seed,
        "fingerprint": f"of {label}, {seed}", "program": "toy", "state": RunState.COMPLETED, "reason": None,
        "step": 3, "config": {"steps": 3}, "began": datetime(2026, 11, 20, 12),
        "ended": datetime(2026, 11, 20, 13), "commit": "abc", "tags": (), "notes": (),
        "metrics": {name: dict(enumerate(values)) for name, values in (metrics or {}).items()},
        "scores": list(scores),
    }  # fmt: skip
    return ExportedRun(**(whole | parts))


def raise_error(error: UserError) -> None:
    """Stop at the first error of a run."""
    raise error


def as_text(curves: Points) -> Curves:
    """Curves to compare."""
    return {
        name: [(step, repr(value)) for step, value in sorted(curve.items())] for name, curve in curves.items()
    }


def files_below(folder: Path) -> set[str]:
    """All files and folders below a folder, hidden ones, too."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


LED_OUT = Path(tempfile.gettempdir()) / f"jestlab-led-out-{os.getpid()}"
"""Where hostile names lead if nobody minds; code that is broken does no more harm than that."""

HOSTILE = [
    f"{LED_OUT}/x", f"/{LED_OUT}/x", f"//{LED_OUT}", f"{LED_OUT}/../{LED_OUT.name}/y", "x/../../../x",
    f"../../{LED_OUT.name}/x", "..", ".", "a/../b", "a//b", "a/", "", "...", "..x/y", "a/..x", ".hidden", "-",
    "~", "~/x", "C:\\x", "a\\..\\b", "a\nb", "a\tb", " ", "a b", "ä λ 漢", "x" * 300, "λ" * 300, "d/" * 200,
    "$(touch x)", "meta.yaml", "s3://bucket/x", "%2e%2e/x",
]  # fmt: skip
"""Names that lead elsewhere, are too long, or hold what a file's name should not."""


def only(folder: Path, out: Path) -> bool:
    """Whether a folder holds nothing beside what was written, and hostile names have led nowhere."""
    return [*folder.iterdir()] == [out] and not LED_OUT.exists()
