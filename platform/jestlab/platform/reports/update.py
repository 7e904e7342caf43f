"""Write the reports of a study as files of the lab: tables, figures, and the page."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from jestlab.analysis.costs import Scope
from jestlab.analysis.files import write_whole
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.reports.builds import (
    BUILD_FILE,
    PAGE_BUILD_FILE,
    Build,
    build_key,
    read,
    read_build,
    remove_stale,
)
from jestlab.platform.spec.load import load_stored
from jestlab.platform.spec.options import Report, TableOptions, custom_code
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.published import import_paper_tables
from jestlab.platform.store.store import Store

if TYPE_CHECKING:
    from jestlab.analysis.tables.core import Table

_TABLE_FILES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".json": "json"}


@dataclass
class Made:
    """Reports that are up to date."""

    files: dict[str, list[Path]] = field(default_factory=dict)  # study → its files, which may be none
    failed: list[str] = field(default_factory=list)  # studies with a report that failed


@dataclass
class Written:
    """Reports of a study that were written."""

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # one line for each report that could not be made
    failed: bool = False  # whether custom code failed


def bring_up_to_date(lab: Lab, store: Store, study: StudySpec, note: Callable[[str], None]) -> Made:
    """Write the reports of a study, and of the parts of a union, whose inputs have changed.

    `note` receives one line for each report that could not be made.

    Raises:
        UserError, OSError: The reports of a single study could not be written.
    """
    studies = [*study.studies.values(), study]
    if any(_shows_published(report) for each in studies for report in each.reports):
        import_paper_tables(store)
    keys = {each.name: build_key(store, each) for each in studies}
    made, stale = Made({each.name: [] for each in studies}), []

    def note_all(each: StudySpec, notes: Sequence[str]) -> None:
        for text in notes:
            note(f"{each.name}: {text}" if study.studies else text)

    for each in studies:
        folder = lab.reports / each.name
        if not each.reports and not each.claims and not each.studies:
            remove_stale(folder, ())
        elif (build := read_build(folder, keys[each.name])) is None:
            stale.append(each)
        else:
            made.files[each.name] = [folder / name for name in build.files]
            note_all(each, build.notes)
    for each, outcome in _write_in_processes(lab, stale, note):
        if isinstance(outcome, Exception):
            if not study.studies:
                raise outcome
            note_all(each, [f"its reports failed: {' '.join(str(outcome).split())}"])
            made.failed.append(each.name)
            continue
        note_all(each, outcome.notes)
        made.files[each.name] = outcome.files
        made.failed += [each.name] if outcome.failed else []
        folder = lab.reports / each.name
        names = tuple(str(path.relative_to(folder)) for path in outcome.files)
        remove_stale(folder, names)
        if outcome.files:  # failed reports are tried again: their cause may be outside of the key
            Build("" if outcome.failed else keys[each.name], names, tuple(outcome.notes)).write(folder)
    return made


def _write_in_processes(
    lab: Lab, studies: Sequence[StudySpec], note: Callable[[str], None]
) -> Iterator[tuple[StudySpec, Written | Exception]]:
    """Write the reports of several studies in parallel; yield the outcomes in order, unions last.

    The page of a union includes the figures of its parts.
    """
    unions = [study for study in studies if study.studies]
    studies = [study for study in studies if not study.studies]
    workers = min(len(os.sched_getaffinity(0)), len(studies))
    if workers < 2:
        yield from ((study, _try_to_write(lab, study)) for study in (*studies, *unions))
        return
    from concurrent.futures import ProcessPoolExecutor

    note(f"writing the reports of {len(studies)} studies")
    spawn = multiprocessing.get_context("spawn")  # a forked process would share the store's connection
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(workers, spawn, initializer=_exit_when_terminated) as pool:
        try:
            with isolated_processes():
                outcomes = [pool.submit(_try_to_write, lab, study) for study in studies]
            for study, outcome in zip(studies, outcomes, strict=True):
                error = outcome.exception()  # if one process is killed, all outcomes that are left are errors
                yield study, (UserError(str(error)) if error is not None else outcome.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - set(others):
                worker.terminate()
            raise
    yield from ((study, _try_to_write(lab, study)) for study in unions)


@contextmanager
def isolated_processes() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which this process handles, and don't import the main module.

    Otherwise a script that launches without `if __name__ == "__main__"` would launch again in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sys.modules["__main__"] = main


def _exit_when_terminated() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # an exception: partial files are removed


def _try_to_write(lab: Lab, study: StudySpec) -> Written | Exception:
    try:
        return write_reports(lab, study)
    except (UserError, OSError) as error:
        return error


def write_reports(lab: Lab, study: StudySpec) -> Written:
    """Write a study's reports to `reports/<name>/`, each file atomically.

    Tables are written as Markdown, LaTeX, CSV, HTML, and JSON; figures as PNG, SVG, and PDF. The second
    report of a name is called `<name>-2`. A study with claims always has their table. Last comes
    `report.html`, with its other files in `report/`. A report that can't be made is noted with the reason.
    """
    from jestlab.analysis import figures, frames
    from jestlab.analysis.own import NotYet
    from jestlab.analysis.report import build
    from jestlab.platform.reports.make import TrustedLoader, request_of, table_of
    from jestlab.platform.reports.selected import selected_images

    results = cache(lambda: frames.read(lab.store_url, study.name))
    images = cache(partial(selected_images, lab))
    loader = TrustedLoader(lab.store_url)
    folder = lab.reports / study.name
    written = Written()
    seen: Counter[str] = Counter()
    reports = _reports(study)
    for report in reports:
        name = _name(report)
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name}-{seen[name]}"
        code = loader if custom_code(report) else None
        try:
            if isinstance(report, TableOptions):
                table = table_of(lab, [study.name], report, results={study.name: results}, loader=code)
                written.files += [
                    write_whole(folder / f"{name}{suffix}", getattr(table, format)())
                    for suffix, format in _TABLE_FILES.items()
                ]
            else:
                sheet = study.figure.sheet if study.figure else None
                request = request_of(
                    lab, study.name, report, results=results, loader=code, images=images, sheet=sheet
                )
                written.files += replace(figures.draw(report.kind, request), name=name).save(folder)
        except NotYet as error:
            written.notes.append(f"no {name} yet: {error}")
        except ValueError as error:
            written.notes.append(f"{name} failed: {error}")
            written.failed = True
    try:
        if reports or study.studies:
            written.files += build(lab.store_url, study.name, folder, own=loader, pictures=images)
    except ValueError as error:
        written.notes.append(f"no page yet: {error}")
    return written


def tables_of(lab: Lab, study: StudySpec) -> Iterator[Table]:
    """Make the tables among a study's reports, except for claims and those that lack results."""
    from jestlab.analysis import frames
    from jestlab.platform.reports.make import TrustedLoader, table_of

    results, loader = cache(lambda: frames.read(lab.store_url, study.name)), TrustedLoader(lab.store_url)
    for report in study.reports:
        if isinstance(report, TableOptions) and report.name != "claims":
            with suppress(ValueError):
                code = loader if report.is_custom else None
                yield table_of(lab, [study.name], report, results={study.name: results}, loader=code)


def _shows_published(report: Report) -> bool:
    """Return whether a report shows published rows next to the study's own."""
    if isinstance(report, TableOptions):
        return report.published and report.is_the_papers
    return report.kind == "published"


def _reports(study: StudySpec) -> tuple[Report, ...]:
    """Return the study's reports, with the table of claims first if the study has claims."""
    has_table = any(isinstance(report, TableOptions) and report.name == "claims" for report in study.reports)
    has_claims = any(each.claims for each in (study, *study.studies.values()))
    return (
        study.reports
        if has_table or not has_claims
        else (TableOptions(kind="table", name="claims"), *study.reports)
    )


def _name(report: Report) -> str:
    """Return the name of a report's files: the kind, or the name of a table."""
    from jestlab.analysis.own import stem_of

    if (code := custom_code(report)) is not None:
        return stem_of(code[1])
    return report.name if isinstance(report, TableOptions) and report.name != "summary" else report.kind


# ---- the page of an experiment


def bring_page_up_to_date(lab: Lab, experiment: str) -> list[Path]:
    """Write the page of an experiment as a launch does, unless it is up to date.

    Returns:
        The page, then its other files.
    """
    from jestlab.analysis.report import FOLDER, PAGE

    folder = lab.reports / experiment
    if (store := Store.open_readonly(lab.store_url)) is None:
        return write_page(lab, experiment, folder)
    try:
        with closing(store):
            study = load_stored(experiment, store.spec(experiment))
            key = build_key(store, study)
    except UserError:  # the programs of the study are missing, but a page doesn't need them
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
    """Write the page of an experiment to a folder; reports in the folder count as out of date."""
    from jestlab.analysis.report import build
    from jestlab.platform.reports.selected import selected_images

    (folder / PAGE_BUILD_FILE).unlink(missing_ok=True)
    if (before := read(folder / BUILD_FILE)) is not None:  # still names the files that jestlab wrote
        replace(before, made_from="").write(folder)
    from jestlab.platform.reports.make import TrustedLoader

    loader, images = TrustedLoader(lab.store_url), partial(selected_images, lab)
    return build(lab.store_url, experiment, folder, baseline, scope, loader, images)
