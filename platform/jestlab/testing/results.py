"""Contract tests for custom figures and tables, on a small study with made-up results."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jestlab.analysis import figures, tables
from jestlab.analysis.custom import CustomCode, NotYet
from jestlab.analysis.files import FORMATS
from jestlab.platform.planning.plan import PlannedRun, plan
from jestlab.platform.planning.recording import record
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store import claims, leases, provenance
from jestlab.platform.store.attempt import WorkerAttempt
from jestlab.platform.store.store import Store

STUDY = StudySpec.parse(
    {
        "name": "example",
        "question": "Does a wider model learn more from examples that a reference model selects?",
        "program": "command",
        "base": {"command": ["true"], "rule": "uniform"},
        "runs": {
            "reference": {"width": 256},
            "uniform": {},
            "joint": {"rule": "joint", "needs": ["reference"]},
        },
        "axes": [{"runs": ["uniform", "joint"], "grid": {"width": [32, 64]}}],
        "seeds": 3,
        "metrics": {
            "shapes/accuracy": {"goal": "max", "unit": "percent", "name": "accuracy"},
            "wiki/perplexity": {"goal": "min", "name": "PPL"},
            "loss": {"goal": "min"},
        },
        "score": ["shapes/accuracy"],
        "claims": [{"statement": "Joint selection learns more", "of": "joint", "above": "uniform"}],
    }
)
"""A study of a reference model and of two rules with two widths each, with three seeds."""

_STEPS = (10, 20, 40)
_GAINS = {"reference": 0.45, "uniform": 0.0, "joint": 0.15}
_FILE_STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def check_figure(figure: Callable[..., Any], **options: Any) -> None:
    """Check a figure: `figure(results, **options)` returns a Matplotlib figure, or it and its caption.

    The results are those of `STUDY`: the evaluations shapes/accuracy and wiki/perplexity, and the training
    metric loss. The figure must be the same each time. If no run has completed, the function must either work
    or request results that are missing.
    """
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        url = write_results(Path(folder))

        def draw(place: str, url: str) -> dict[str, bytes]:
            code = _loader(figure)
            plot = figures.draw(_name(figure), url, STUDY.name, options=options, own=code)
            paths = plot.save(f"{folder}/{place}")
            return {path.suffix: path.read_bytes() for path in paths}

        with _failures():
            first, again = draw("first", url), draw("again", url)
        for suffix, start in _FILE_STARTS.items():
            assert first[suffix].startswith(start), f"the {suffix} file of the figure isn't valid"
        assert first == again, "a figure must be the same for the same results: seed random numbers"
        with _failures("while no run has completed: "), suppress(NotYet):
            draw("early", write_results(Path(folder, "early"), complete=False))


def check_table(table: Callable[..., Any], **options: Any) -> None:
    """Check a table: `table(results, **options)` returns a pandas frame.

    The results and requirements are the same as for `check_figure`. The index of a frame names its rows.
    """
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        url = write_results(Path(folder))

        def make(url: str) -> Any:
            return tables.table(url, _name(table), [STUDY.name], options=options, own=_loader(table))

        with _failures():
            first, again = make(url), make(url)
        for format in FORMATS:
            text = first.render(format)
            assert text.strip(), f"the table is empty as {format}"
            assert text == again.render(format), "a table must be the same for the same results"
        assert json.loads(first.json())["rows"], "a table must have rows"
        with _failures("while no run has completed: "), suppress(NotYet):
            make(write_results(Path(folder, "early"), complete=False)).markdown()


def write_results(folder: Path, *, complete: bool = True) -> str:
    """Write made-up results of `STUDY` to a store in a folder, and return the store's URL.

    Args:
        folder: The folder, which is created if necessary.
        complete: Whether the runs complete; otherwise, they are interrupted after two evaluations.
    """
    folder.mkdir(exist_ok=True)
    url = f"sqlite:///{folder / 'results.db'}"
    store = Store.open(url)
    try:
        planned = plan(STUDY, placement="none")
        record(store, planned)
        launcher = leases.enter_launcher(store, "nobody:0:0")
        for run in planned.runs:
            _write_run(store, run, launcher, folder, complete=complete)
    finally:
        store.close_whole()
    return url


def _write_run(store: Store, run: PlannedRun, launcher: Any, folder: Path, *, complete: bool) -> None:
    terms = claims.ClaimTerms(launcher, "local", 0)
    claim = claims.claim(store, run.fingerprint, f"{run.directory}/log.txt", terms)
    assert claim is not None
    attempt = WorkerAttempt(
        store,
        run.fingerprint,
        claim.number,
        root=folder,
        directory=folder,
        provenance=provenance.Provenance("host", "2 cores", {"python": "3"}, None, None, {}),
        handle=f"host:{os.getpid()}:1:log.txt",
    )
    attempt.catch_up()
    width = float(run.config["width"])
    for step in _STEPS if complete else _STEPS[:2]:
        learned = (1 - 0.9 ** (step / 10)) * (0.3 + _GAINS[run.name] + width / 1000) + run.seed / 200
        attempt.log(step, {"loss": 2 - learned})
        scores = {"shapes/accuracy": learned, "wiki/perplexity": 30 - 20 * learned}
        attempt.evaluation(step, 64 * step, 1e6 * width * step, scores)
        attempt.progress(step, _STEPS[-1])
    if complete:
        attempt.complete()
    else:
        attempt.interrupt("interrupted")


def _loader(function: Callable[..., Any]) -> Callable[..., CustomCode]:
    return lambda experiment, kind, name: CustomCode(name, function)


def _name(function: Callable[..., Any]) -> str:
    return f"custom:{getattr(function, '__name__', 'function')}"


@contextmanager
def _failures(prefix: str = "") -> Iterator[None]:
    """Convert ValueError and `NotYet` to AssertionError, which is raised from them."""
    try:
        yield
    except NotYet as error:
        raise AssertionError(str(error)) from error
    except ValueError as error:
        raise AssertionError(f"{prefix}{error}") from error
