"""Experiments in real stores, their reports, and a browser that opens them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "platform" / "support"))

import plans_support as plans
from tests.browser_support import Opened, open_page

from jestlab.analysis.costs import Cost
from jestlab.models.training.phases import Spent
from jestlab.platform.planning.plan import Plan
from jestlab.platform.programs import Price
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

SPENT = Spent(
    startup_seconds=0.4,
    compilation_seconds=0.8,
    training_seconds=2.0,
    evaluation_seconds=0.6,
    checkpoint_seconds=0.2,
    winddown_seconds=None,
    resumed_step=0,
    reached_step=4,
    saved_step=2,
    saved_seconds=1.3,
)
"""Where the time of each attempt went."""


@dataclass
class Run:
    """One run: an evaluation a step, each with the same value for both metrics."""

    name: str
    scores: Sequence[float] = ()
    seed: int = 0
    label: str = ""
    ends: str = "complete"  # complete, fail, never: is left RUNNING; none: was never begun
    fails_before: Sequence[str] = ()  # reasons of attempts that failed
    flops: float = 3e9  # of a step; 0 where the program counts none
    needs: Mapping[str, str] = field(default_factory=dict)  # role → name, of the same seed
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Lab:
    """A store with one experiment."""

    url: str
    folder: Path
    name: str = "study"


def make_lab(
    folder: Path,
    runs: Sequence[Run],
    question: str = "Is it faster?",
    name: str = "study",
    reports: Sequence[Mapping[str, Any]] = (),
    claims: Sequence[Mapping[str, Any]] = (),
    family: Any = None,
) -> Lab:
    """Record runs, and go through what happened to them, as launchers and workers do."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{folder / 'results.db'}"
    store = Store.open(url)
    planned: dict[tuple[str, int], Any] = {}
    for run in runs:
        needs = {role: planned[needed, run.seed].fingerprint for role, needed in run.needs.items()}
        steps = max(1, len(run.scores))
        made = plans.run(
            run.name,
            config={"selection": {"rule": run.label or run.name}, "seed": run.seed} | dict(run.config),
            seed=run.seed,
            needs=needs,
            price=Price(Cost(image_tower=run.flops * steps), examples=64 * steps) if run.flops else None,
        )
        planned[run.label or run.name, run.seed] = replace(made, label=run.label or made.label)
    spec: dict[str, Any] = {"name": name, "question": question, "scale": "smoke", "runs": {"uniform": {}}}
    spec |= {"reports": list(reports), "claims": list(claims), "family": family}
    spec["metrics"] = {"*": {"goal": "max", "unit": "percent"}}
    needed = frozenset(name for run in runs for name in run.needs.values())
    store.record(Plan(Study.parse(spec), tuple(planned.values()), needed))
    for run in runs:
        _happen(store, planned[run.label or run.name, run.seed], run)
    store.close()
    return Lab(url, folder, name)


def _happen(store: Store, made: Any, run: Run) -> None:
    row = next(row for row in store.runs(store.experiments()[0].name) if row.fingerprint == made.fingerprint)
    for reason in run.fails_before:
        plans.begun(store, row, spent=SPENT).fail(reason)
        plans.move(store, made, RunState.PENDING)
    if run.ends == "none":
        return
    attempt = plans.begun(store, row, spent=SPENT)
    for step, score in enumerate(run.scores, start=1):
        scores = {"shapes/zero_shot": score, "shapes_retrieval/i2t_r1": score}
        attempt.evaluation(step, 64 * step, run.flops * step, scores)
        attempt.progress(step, len(run.scores))
    if run.ends == "complete":
        attempt.complete()
    elif run.ends == "fail":
        attempt.fail("ValueError: it broke <b>here</b>")
    else:
        attempt.flush()


def finished() -> list[Run]:
    """A reference, uniform, independent and joint, three seeds each; one attempt failed on the way."""
    runs = []
    for seed, more in enumerate((0.0, 0.04, -0.03)):
        runs += [
            Run("reference", [0.5, 0.7 + more], seed, flops=9e9),
            Run("uniform", [0.1, 0.2, 0.3, 0.4 + more], seed),
            Run(
                "independent", [0.1, 0.3, 0.4, 0.45 - more], seed, flops=8e9,
                needs={"selection": "reference"},
            ),
            Run(
                "joint", [0.3, 0.5, 0.6, 0.65 + more], seed, flops=8e9, needs={"selection": "reference"},
                fails_before=["lost its node"] if seed == 1 else [],
            ),
        ]  # fmt: skip
    return runs


@pytest.fixture
def a_run() -> type[Run]:
    """One run of an experiment."""
    return Run


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished experiment, which tests read but do not change."""
    reports = [{"kind": "table", "name": "comparison"}, {"kind": "speedup"}, {"kind": "batch_size"}]
    return make_lab(tmp_path_factory.mktemp("study"), finished(), reports=reports)


@pytest.fixture(scope="session")
def page(study: Lab) -> Path:
    """Its report."""
    from jestlab.analysis.report import build

    return build(study.url, "study", study.folder / "report", "uniform")[0]


@pytest.fixture
def new_lab(tmp_path: Path) -> Callable[..., Lab]:
    """Makes an experiment of given runs."""
    return lambda *runs, **told: make_lab(tmp_path / "lab", runs, **told)


@pytest.fixture
def figure_stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed figures are one-pixel images: drawing them takes most of the time that a report takes."""
    from PIL import Image

    from jestlab.analysis.figures import Plot

    content = io.BytesIO()
    Image.new("RGB", (1, 1)).save(content, format="png")
    monkeypatch.setattr(Plot, "_drawn", lambda self, suffixes: [content.getvalue() for _ in suffixes])


@pytest.fixture(scope="module")
def shown(browser: Any, page: Path) -> Iterator[Opened]:
    """The report of the finished experiment, opened once for tests that leave it as it was."""
    found = open_page(browser, page)
    yield found
    found.tab.context.close()
