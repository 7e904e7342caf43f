"""Write the reports of a study: tables and figures as files of the lab, rebuilt when inputs change."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from jestlab.analysis.costs import Scope
from jestlab.analysis.files import write_whole
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.own_results import Loader
from jestlab.platform.spec import own_reports
from jestlab.platform.spec.load import load_stored
from jestlab.platform.spec.reports import OwnFigureReport, Report, TableReport, own_code
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.published import with_the_papers
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    Acceptance,
    Attempt,
    Budget,
    Cost,
    Experiment,
    Member,
    Need,
    Note,
    Published,
    Retraction,
    Run,
    Tag,
)
from jestlab.platform.store.trust import is_trusted

if TYPE_CHECKING:
    from jestlab.analysis.figures.selected import Pictures
    from jestlab.analysis.frames import Frames
    from jestlab.analysis.tables.core import Table

_TABLE_FILES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".json": "json"}


@dataclass
class Made:
    """Reports that are up to date.

    Attributes:
        files: Study → its files; none where it has no reports, or they could not be made.
        failed: Studies whose reports could not be written, all or those of their own code.
    """

    files: dict[str, list[Path]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def bring_up_to_date(lab: Lab, store: Store, study: Study, note: Callable[[str], None]) -> Made:
    """Write the reports of a study, of a union those of each part and then its own, where anything changed.

    Reports whose build key has not changed since they were written are left as they are. Those of several
    studies are made by as many processes as there are cores. `note` is told what cannot be made yet, and why.

    Raises:
        UserError, OSError: A study by itself has reports that cannot be written.
    """
    studies = [*study.studies.values(), study]
    if any(_shows_published(report) for each in studies for report in each.reports):
        with_the_papers(store)
    sources = {each.name: build_key(store, each) for each in studies}
    made, stale = Made(), []
    for each in studies:
        made.files[each.name] = []
        folder = lab.reports / each.name
        if not each.reports and not each.claims and not each.studies:
            remove_stale(folder, ())
            continue
        if (build := read_build(folder, sources[each.name])) is None:
            stale.append(each)
            continue
        made.files[each.name] = [folder / name for name in build.files]
        for text in build.notes:
            note(f"{each.name}: {text}" if study.studies else text)
    for each, outcome in _written(lab, stale, note):
        if isinstance(outcome, Exception):
            if not study.studies:
                raise outcome
            note(f"{each.name}: its reports failed: {' '.join(str(outcome).split())}")
            made.failed.append(each.name)
            continue
        for text in outcome.notes:
            note(f"{each.name}: {text}" if study.studies else text)
        made.files[each.name] = outcome.files
        made.failed += [each.name] if outcome.failed else []
        folder = lab.reports / each.name
        names = tuple(str(path.relative_to(folder)) for path in outcome.files)
        remove_stale(folder, names)
        if outcome.files:  # what has failed is tried again: it may be mended without a change of its code
            key = "" if outcome.failed else sources[each.name]
            Build(key, names, tuple(outcome.notes)).write(folder)
    return made


@dataclass
class Written:
    """Reports of a study that were written.

    Attributes:
        files: They.
        notes: What is to be said of those that could not be made.
        failed: Whether code of one's own failed.
    """

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: bool = False


_Outcome = Written | Exception
"""What was written, or what went wrong."""


def _written(
    lab: Lab, studies: Sequence[Study], note: Callable[[str], None]
) -> Iterator[tuple[Study, _Outcome]]:
    """Write the reports of studies, each as soon as a core is free; in their order.

    A union waits for all others: its page shows their figures as they were drawn.
    """
    unions = [study for study in studies if study.studies]
    studies = [study for study in studies if not study.studies]
    workers = min(len(os.sched_getaffinity(0)), len(studies))
    if workers < 2:
        yield from ((study, _outcome(lab, study)) for study in (*studies, *unions))
        return
    from concurrent.futures import ProcessPoolExecutor

    note(f"writing the reports of {len(studies)} studies")
    fresh = multiprocessing.get_context("spawn")  # a fork would share the store's connection
    with ProcessPoolExecutor(workers, fresh, initializer=_end_with_ctrl_c) as pool:
        try:
            # Held until those that are started now know what to do about them.
            with _interrupts_held(), _without_main():
                outcomes = [pool.submit(_outcome, lab, study) for study in studies]
            for study, outcome in zip(studies, outcomes, strict=True):
                error = outcome.exception()  # a process that was killed takes the others along
                yield study, (UserError(str(error)) if error is not None else outcome.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    yield from ((study, _outcome(lab, study)) for study in unions)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C takes effect only after this, here and in processes that are started meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started meanwhile do not execute this one's script, as Python has them do otherwise.

    A script that launches without asking `if __name__ == "__main__"` would launch again in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end_with_ctrl_c() -> None:
    """Ctrl-C reaches every process of the terminal; these end by it without a word, and leave nothing half
    written."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # one that was held: nothing has been begun
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, _end)


def _end(*_: object) -> None:
    logging.disable()  # SQLAlchemy logs every exception that reaches it while it closes a connection
    sys.unraisablehook = lambda _: os._exit(130)  # Python discards an exception that is raised in a finalizer
    sys.exit(130)  # not os._exit: a file that is half written is removed


def _outcome(lab: Lab, study: Study) -> _Outcome:
    try:
        return write_all(lab, study)
    except (UserError, OSError) as error:
        return error


def write(lab: Lab, study: Study, note: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write a study's reports as `write_all` does, and return the files; `note` is told its notes."""
    written = write_all(lab, study)
    for text in written.notes:
        note(text)
    return written.files


def write_all(lab: Lab, study: Study) -> Written:
    """Write a study's reports from the store to `reports/<name>/`, each file atomically.

    Tables come as Markdown, LaTeX, CSV, HTML and JSON, figures as PNG, SVG and PDF. The second report of a
    name is named `<name>-2`. The claims of a study are a table, too, asked for or not. Last comes
    `report.html`, a page that holds the whole experiment, and what lies beside it in `report/`; a union
    always has one. A report that cannot be made yet, or whose code fails, is noted with the reason.
    """
    from jestlab.analysis import frames
    from jestlab.analysis.own import NotYet
    from jestlab.analysis.report import build
    from jestlab.platform.pictures import pictures

    results = cache(lambda: frames.read(lab.store_url, study.name))  # once for all of them, if one needs it
    folder = lab.reports / study.name
    own = Loader(lab.store_url)
    seen_by_runs = cache(partial(pictures, lab))  # for the figure, and again for the page
    written = Written()
    seen: Counter[str] = Counter()
    asked = _reports(study)
    for report in asked:
        name = _name(report)
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name}-{seen[name]}"
        try:
            written.files += _write_report(
                lab.store_url, study, results, report, folder, name, own, seen_by_runs
            )
        except NotYet as error:
            written.notes.append(f"no {name} yet: {error}")
        except ValueError as error:
            written.notes.append(f"{name} failed: {error}")
            written.failed = True
    try:
        if asked or study.studies:
            written.files += build(lab.store_url, study.name, folder, own=own, pictures=seen_by_runs)
    except ValueError as error:
        written.notes.append(f"no page yet: {error}")
    return written


def _shows_published(report: Report) -> bool:
    """Whether it has published rows beside the study's own."""
    if isinstance(report, TableReport):
        return report.published and report.is_the_papers
    return report.kind == "published"


def _reports(study: Study) -> tuple[Report, ...]:
    """What it asks for, and first the verdicts on what it, or a study of it, claims."""
    claims = TableReport(kind="table", name="claims")
    asked = any(isinstance(report, TableReport) and report.name == "claims" for report in study.reports)
    claiming = any(each.claims for each in (study, *study.studies.values()))
    return study.reports if asked or not claiming else (claims, *study.reports)


def _name(report: Report) -> str:
    """What the files of a report are called: by its kind, a table other than the summary by its name."""
    from jestlab.analysis.own import stem_of

    if (own := own_code(report)) is not None:
        return stem_of(own[1])
    return report.name if isinstance(report, TableReport) and report.name != "summary" else report.kind


def _write_report(
    url: str,
    study: Study,
    results: Callable[[], Frames],
    report: Report,
    folder: Path,
    name: str,
    own: Loader,
    pictures: Pictures,
) -> list[Path]:
    """The files of one report; ValueError if the store cannot fill it yet."""
    from jestlab.analysis import figures

    results = _shown(results, report)
    if isinstance(report, TableReport):
        table = _table(url, study.name, results, report, own)
        return [
            write_whole(folder / f"{name}{suffix}", getattr(table, format)())
            for suffix, format in _TABLE_FILES.items()
        ]
    options = report.model_dump(exclude={"kind", "runs", "figure"})
    plain = study.figure.sheet if study.figure else figures.Sheet()
    sheet = report.figure.sheet.over(plain) if report.figure else plain
    loader = own if isinstance(report, OwnFigureReport) else None
    options |= {"own": loader, "pictures": pictures}
    request = figures.Request(url, study.name, results=results, sheet=sheet, **options)
    plot = figures.draw(report.kind, request)
    return replace(plot, name=name).save(folder)


def _shown(results: Callable[[], Frames], report: Report) -> Callable[[], Frames]:
    """The results of the runs that a report is about."""
    shown: tuple[str, ...] | None = getattr(report, "runs", None)
    return results if shown is None else cache(lambda: results().only(shown))


def _table(
    url: str, experiment: str, results: Callable[[], Frames], report: TableReport, own: Loader
) -> Table:
    from jestlab.analysis import tables

    return tables.table(
        url, report.name, [experiment], baseline=report.baseline, scope=report.scope, mean=report.mean,
        crossing=report.crossing, with_published=report.published, results={experiment: results},
        score=report.score, shape=report.shape, options=report.options,
        own=own if report.is_own else None,
    )  # fmt: skip


def tables_of(lab: Lab, study: Study) -> Iterator[Table]:
    """Make the tables that a study ends in, but for its claims, and those that the store cannot fill yet."""
    from jestlab.analysis import frames

    results, own = cache(lambda: frames.read(lab.store_url, study.name)), Loader(lab.store_url)
    for report in study.reports:
        if isinstance(report, TableReport) and report.name != "claims":
            with suppress(ValueError):
                yield _table(lab.store_url, study.name, _shown(results, report), report, own)


# ---- the page of an experiment


def bring_page_up_to_date(lab: Lab, experiment: str) -> list[Path]:
    """Write the page of an experiment as a launch does, unless it is up to date.

    Returns:
        The page, then the files beside it.
    """
    from jestlab.analysis.report import FOLDER, PAGE

    folder = lab.reports / experiment
    if (store := Store.open_readonly(lab.store_url)) is None:
        return write_page(lab, experiment, folder)
    try:
        with closing(store):
            study = load_stored(experiment, store.spec(experiment))
            key = build_key(store, study)
    except UserError:  # a study whose programs are missing: there is a page all the same
        return write_page(lab, experiment, folder)
    for name in (BUILD_FILE, PAGE_BUILD_FILE):
        build = read_build(folder, key, name)
        if build is not None and PAGE in build.files:
            return [folder / PAGE, *(folder / file for file in build.files if Path(file).parts[0] == FOLDER)]
    paths = write_page(lab, experiment, folder)
    if not study.studies:  # the page of a union shows its studies, which change independently
        names = tuple(str(path.relative_to(folder)) for path in paths)
        Build(key, names).write(folder, PAGE_BUILD_FILE)
    return paths


def write_page(
    lab: Lab, experiment: str, folder: Path, baseline: str | None = None, scope: Scope | None = None
) -> list[Path]:
    """Write the page of an experiment to a folder, and forget what the reports there were built from."""
    from jestlab.analysis.report import build

    (folder / PAGE_BUILD_FILE).unlink(missing_ok=True)
    if (before := _read(folder / BUILD_FILE)) is not None:  # which files are ours has to be known later
        replace(before, made_from="").write(folder)
    from jestlab.platform.pictures import pictures

    own = Loader(lab.store_url)
    return build(lab.store_url, experiment, folder, baseline, scope, own, partial(pictures, lab))


# ---- build keys

BUILD_FILE = ".made-from.json"
"""File that holds the build key of all reports of a study: tables, figures and the page."""

PAGE_BUILD_FILE = ".page-made-from.json"
"""The same for its page alone, and for what lies beside that in `report/`."""


@dataclass(frozen=True)
class Build:
    """What the reports of one study were built from.

    Attributes:
        made_from: Build key: a digest of all that the reports depend on.
        files: The reports' files, relative to their folder.
        notes: What was said about reports that could not be made.
    """

    made_from: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def write(self, folder: Path, name: str = BUILD_FILE) -> None:
        """Write it beside the reports."""
        text = json.dumps({"made_from": self.made_from, "files": self.files, "notes": self.notes}, indent=1)
        write_whole(folder / name, text + "\n")


def _read(path: Path) -> Build | None:
    """Read what reports were built from; None if there is no such file, or none of ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Build(found["made_from"], tuple(map(str, found["files"])), tuple(found["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_stale(folder: Path, kept: Collection[str]) -> None:
    """Remove files of earlier reports that are not among those kept, relative to their folder.

    Only what jestlab wrote is removed, and nobody has changed since.
    """
    path = folder / BUILD_FILE
    before = _read(path)
    if before is None:
        return
    written_ns = path.stat().st_mtime_ns
    root = folder.resolve()
    emptied = {folder}
    for name in set(before.files) - set(kept):
        file = folder / name
        is_ours = file.resolve().is_relative_to(root) and not file.is_symlink() and file.is_file()
        if is_ours and file.stat().st_mtime_ns <= written_ns:
            file.unlink()
            emptied.add(file.parent)
    if not kept:
        path.unlink()
    for place in sorted(emptied, key=lambda place: -len(place.parts)):
        with suppress(OSError):  # it holds something
            place.rmdir()


def read_build(folder: Path, made_from: str, name: str = BUILD_FILE) -> Build | None:
    """Read what a folder's reports were built from; None unless that is this key, and all files are there."""
    build = _read(folder / name)
    if (
        build is None
        or build.made_from != made_from
        or not all((folder / file).is_file() for file in build.files)
    ):
        return None
    return build


def build_key(store: Store, study: Study) -> str:
    """Compute the build key of a study's reports: a digest of what they depend on.

    That is the code that makes them, jestlab's and one's own; the study, its runs and their attempts as the
    store has them, all of which change whenever there are new results; what they were planned to cost;
    published rows, notes and tags; and how many runs there are that could share a reference with them.
    """
    digest = hashlib.sha256()
    own = own_reports.digests(study)
    own += [f"trusted {is_trusted(store, part)}" for part in (*study.studies, study.name)] if own else []
    for part in ([version("jestlab"), study.to_dict()], _code(), own, *_of_store(store, study)):
        digest.update(json.dumps(part, default=str).encode())
    return digest.hexdigest()


@cache
def _code() -> list[Any]:
    """The files that make tables, figures and pages, by size and time of change when first asked."""
    import jestlab.analysis

    folder = Path(jestlab.analysis.__file__).parent
    files = [Path(__file__).with_name("reports.py"), *folder.rglob("*.*")]
    stats = ((path, path.stat()) for path in sorted(files) if "__pycache__" not in path.parts)
    return [(path.name, stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _of_store(store: Store, study: Study) -> Iterator[Sequence[Any]]:
    """Rows of the store on which a study's reports depend."""
    mine = select(Member.run_id).where(Member.experiment == study.name)
    places = (
        select(Member.label, Member.position, Member.needed, Run.fingerprint, Run.state, Run.reason, Run.step)
        .add_columns(Run.total_steps)
        .join(Run, Run.id == Member.run_id)
        .where(Member.experiment == study.name)
        .order_by(Member.position, Member.label)
    )
    attempts = (
        select(Attempt.run_id, Attempt.number, Attempt.state, Attempt.reason)
        .add_columns(Attempt.started_at, Attempt.heartbeat_at, Attempt.ended_at)
        .where(Attempt.run_id.in_(mine))
        .order_by(Attempt.run_id, Attempt.number)
    )
    costs = select(Cost.__table__).where(Cost.run_id.in_(mine)).order_by(Cost.run_id, Cost.component)
    budgets = select(Budget.__table__).where(Budget.run_id.in_(mine)).order_by(Budget.run_id)
    parts = (  # of a union: as they were launched last, maybe alone
        select(Experiment.name, Experiment.spec)
        .where(Experiment.name.in_(study.studies))
        .order_by(Experiment.name)
    )
    counts = (
        select(func.count(), func.max(Published.updated_at)).select_from(Published),
        *(select(func.count(), func.max(table.id)).select_from(table) for table in (Note, Tag, Run)),
        select(func.count()).select_from(Need),
        *(
            select(func.count(), func.max(table.id), func.max(table.created_at)).select_from(table)
            for table in (Acceptance, Retraction)
        ),
    )
    with store.reading() as connection:
        for query in (places, attempts, costs, budgets, parts, *counts):
            yield [tuple(row) for row in connection.execute(query)]
