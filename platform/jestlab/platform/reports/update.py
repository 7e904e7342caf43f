"""Write the reports of a study as files of the lab: tables, figures, and the page.

Reports are written again if their build key has changed: a digest of everything that they show.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from sqlalchemy import func, select

from jestlab.analysis.files import FORMATS, write_whole
from jestlab.platform import plugins
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.spec.options import PageOptions, Report, TableOptions, custom_code
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.published import import_paper_tables
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    AcceptanceRow,
    AttemptRow,
    BudgetRow,
    CostRow,
    ExperimentRow,
    MemberRow,
    NeedRow,
    NoteRow,
    PublishedRow,
    RegistrationRow,
    RetractionRow,
    RunRow,
    TagRow,
)
from jestlab.platform.store.trust import is_trusted

if TYPE_CHECKING:
    from jestlab.analysis.results import Snapshot
    from jestlab.analysis.tables.core import Table

BUILD_FILE = ".made-from.json"
"""File with the build key of a study's reports: tables, figures, and the page."""


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
    answer: tuple[str, ...] = ()  # lines of the page's answer


def bring_up_to_date(lab: Lab, store: Store, study: StudySpec, note: Callable[[str], None]) -> Made:
    """Write the reports of a study, and of the parts of a union, whose inputs have changed.

    `note` receives one line for each report that could not be made.

    Raises:
        UserError, OSError: The reports of a single study could not be written.
    """
    studies = [*study.studies.values(), study]  # the page of a union includes the figures of its parts
    if any(_shows_published(report) for each in studies for report in each.reports):
        import_paper_tables(store)
    made = Made()
    for each in studies:
        try:
            written = _bring_one_up_to_date(lab, store, each)
        except (UserError, OSError) as error:
            if not study.studies:
                raise
            written = Written(notes=[f"its reports failed: {' '.join(str(error).split())}"], failed=True)
        made.files[each.name] = written.files
        made.failed += [each.name] if written.failed else []
        for text in written.notes:
            note(f"{each.name}: {text}" if study.studies else text)
    return made


def _bring_one_up_to_date(lab: Lab, store: Store, study: StudySpec) -> Written:
    """Write the reports of one study if they are out of date, and remove obsolete files."""
    folder = lab.reports / study.name
    if not study.reports and not study.claims and not study.studies:
        remove_stale(folder, ())
        return Written()
    key, build = build_key(store, study), Build.read(folder)
    if build is not None and build.is_current(folder, key):
        return Written([folder / name for name in build.files], [*build.notes])
    written = write_reports(lab, study)
    names = tuple(str(path.relative_to(folder)) for path in written.files)
    remove_stale(folder, names)
    if names:  # failed reports are tried again: the key may not cover the cause
        made_from = "" if written.failed else key
        notes, answer = tuple(written.notes), written.answer
        Build(made_from=made_from, files=names, notes=notes, answer=answer).write(folder)
    return written


def write_reports(lab: Lab, study: StudySpec) -> Written:
    """Write a study's reports to `reports/<name>/`, each file atomically.

    Tables are written as Markdown, LaTeX, CSV, HTML, and JSON; figures as PNG, SVG, and PDF. The second
    report with the same name is called `<name>-2`. A study with claims always gets the table of its claims.
    The page `report.html` comes last, with its other files in `report/`. The notes list the reports that
    can't be made, with the reasons.
    """
    from jestlab.analysis import figures
    from jestlab.analysis.errors import NotYet, RequestError
    from jestlab.analysis.report import build, gather, read_answer
    from jestlab.analysis.results import opened
    from jestlab.platform.reports.make import TrustedLoader, figure_options, table_of
    from jestlab.platform.reports.selected import selected_images

    images = cache(partial(selected_images, lab))
    loader = TrustedLoader(lab.store_url)
    folder = lab.reports / study.name
    written = Written()

    def write(store: Snapshot, name: str, report: Report | None) -> None:
        """Write the files of a report, or of the page."""
        try:
            if report is None:
                written.files += build(gather(store, study.name, own=loader, pictures=images), folder)
                written.answer = tuple(filter(None, read_answer(store, study.name).lines()))
                return
            code = loader if custom_code(report) else None
            if isinstance(report, TableOptions):
                table = table_of(store, [study.name], report, own=code)
                written.files += [
                    write_whole(folder / f"{name}.{'tex' if form == 'latex' else form}", table.render(form))
                    for form in FORMATS
                ]
                return
            arguments = figure_options(lab, report) | {"own": code, "pictures": images}
            plot = figures.draw(report.kind, store, study.name, **arguments)
            written.files += replace(plot, name=name).save(folder)
        except NotYet as error:
            written.notes.append(f"no {name} yet: {error}")
        except RequestError as error:
            written.notes.append(f"{name} failed: {error}")
            written.failed = True
        except ValueError as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
            written.notes.append(f"{name} failed, which is a bug: {' '.join(text.split())}")
            written.failed = True

    seen: Counter[str] = Counter()
    reports = _with_claims(study)
    with opened(lab.store_url) as store:
        for report in reports:
            stem = _file_stem(report)
            seen[stem] += 1
            write(store, stem if seen[stem] == 1 else f"{stem}-{seen[stem]}", report)
        if reports or study.studies:
            write(store, "page", None)
    return written


def tables_of(lab: Lab, study: StudySpec) -> Iterator[Table]:
    """Make the tables among a study's reports, except the table of claims and those that can't be made."""
    from jestlab.analysis.errors import RequestError
    from jestlab.analysis.results import opened
    from jestlab.platform.reports.make import TrustedLoader, table_of

    loader = TrustedLoader(lab.store_url)
    with opened(lab.store_url) as store:
        for report in study.reports:
            if isinstance(report, TableOptions) and report.name != "claims":
                with suppress(RequestError):
                    code = loader if custom_code(report) else None
                    yield table_of(store, [study.name], report, own=code)


def _shows_published(report: Report) -> bool:
    """Return whether a report shows published rows next to the study's own."""
    if isinstance(report, TableOptions):
        return report.published and report.is_the_papers
    return report.kind == "published"


def _with_claims(study: StudySpec) -> tuple[Report, ...]:
    """Return the study's reports, with the table of claims first if the study has claims."""
    has_table = any(isinstance(report, TableOptions) and report.name == "claims" for report in study.reports)
    if has_table or not any(each.claims for each in (study, *study.studies.values())):
        return study.reports
    return (TableOptions(kind="table", name="claims"), *study.reports)


def _file_stem(report: Report) -> str:
    """Return the name of a report's files, without a suffix: the kind, or the name of a table."""
    from jestlab.analysis.custom import stem_of

    if (code := custom_code(report)) is not None:
        return stem_of(code[1])
    return report.name if isinstance(report, TableOptions) and report.name != "summary" else report.kind


def write_page(
    lab: Lab, experiment: str, folder: Path | None = None, options: PageOptions | None = None
) -> list[Path]:
    """Write the page of an experiment to a folder, by default that of its reports.

    If a folder or an option is given, earlier reports in the folder count as out of date: the next
    launch writes them again.

    Returns:
        The page, then its other files.
    """
    from jestlab.analysis.report import build, gather
    from jestlab.platform.reports.make import TrustedLoader
    from jestlab.platform.reports.selected import selected_images

    options = options or PageOptions()
    is_as_launched = folder is None and options == PageOptions()
    folder = folder or lab.reports / experiment
    if not is_as_launched and (before := Build.read(folder)) is not None:  # it still lists the files
        before.model_copy(update={"made_from": ""}).write(folder)
    loader, images = TrustedLoader(lab.store_url), partial(selected_images, lab)
    page = gather(lab.store_url, experiment, options.baseline, options.scope, loader, images)
    return build(page, folder)


# ---- when to write reports again


class Build(BaseModel):
    """The origin of a study's reports.

    Attributes:
        made_from: Build key; empty if the reports are out of date.
        files: Paths of the files, relative to the study's folder.
        notes: One line for each report that could not be made.
        answer: Lines of the page's answer, without which a launch that runs nothing would import pandas.
    """

    made_from: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the build to the folder of the reports."""
        write_whole(folder / BUILD_FILE, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Build | None:
        """Read the build of a folder's reports; None if it is missing or invalid."""
        try:
            return cls.model_validate_json((folder / BUILD_FILE).read_bytes())
        except (OSError, ValueError):
            return None

    def is_current(self, folder: Path, key: str) -> bool:
        """Return whether the reports were made with this build key, and all their files exist."""
        return self.made_from == key and all((folder / file).is_file() for file in self.files)


def remove_stale(folder: Path, kept: Collection[str]) -> None:
    """Remove the files of earlier reports that aren't in `kept`, unless they were changed afterwards."""
    if (before := Build.read(folder)) is None:
        return
    path, root = folder / BUILD_FILE, folder.resolve()
    written_ns = path.stat().st_mtime_ns
    parents = {folder}
    for name in set(before.files) - set(kept):
        file = folder / name
        is_ours = file.resolve().is_relative_to(root) and not file.is_symlink() and file.is_file()
        if is_ours and file.stat().st_mtime_ns <= written_ns:
            file.unlink()
            parents.add(file.parent)
    if not kept:
        path.unlink()
    for parent in sorted(parents, key=lambda parent: -len(parent.parts)):
        with suppress(OSError):  # it isn't empty
            parent.rmdir()


def build_key(store: Store, study: StudySpec) -> str:
    """Compute the build key of a study's reports: a digest of everything that they show.

    It covers the code that makes them (jestlab's and custom code), the study, its runs, and their results and
    costs. Of the whole store, it covers published rows, notes, tags, acceptances, retractions, registrations,
    and the number of runs, since other runs can share a reference with the study's.
    """
    digest = hashlib.sha256()
    named = (custom_code(report) for part in (*study.studies.values(), study) for report in part.reports)
    custom = [f"{name} {plugins.digest(kind, name)}" for kind, name, _ in filter(None, named)]
    if custom:
        custom += [f"trusted {is_trusted(store, part)}" for part in (*study.studies, study.name)]
    for part in (
        [version("jestlab"), study.to_dict()],
        _code_state(),
        custom,
        *store_state(store, study.name, study.studies),
    ):
        digest.update(json.dumps(part, default=str).encode())
    return digest.hexdigest()


@cache
def _code_state() -> list[Any]:
    """Return the names, sizes, and modification times of the files that make reports."""
    import jestlab.analysis

    folder = Path(jestlab.analysis.__file__).parent
    files = [*Path(__file__).parent.glob("*.py"), *folder.rglob("*.*")]
    stats = ((path, path.stat()) for path in sorted(files) if "__pycache__" not in path.parts)
    return [(path.name, stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def store_state(store: Store, study: str, parts: Collection[str] = ()) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of the store that the reports of a study, or of a union of `parts`, depend on."""
    is_member = MemberRow.experiment == study
    runs = select(MemberRow.run_id).where(is_member)
    run = (RunRow.id, RunRow.fingerprint, RunRow.state, RunRow.reason, RunRow.step, RunRow.total_steps)
    attempt = (AttemptRow.id, AttemptRow.state, AttemptRow.heartbeat_at, AttemptRow.ended_at)
    queries = [
        select(MemberRow.run_id, MemberRow.label, MemberRow.position, MemberRow.needed).where(is_member),
        select(*run).where(RunRow.id.in_(runs)),
        select(*attempt).where(AttemptRow.run_id.in_(runs)),
        select(CostRow.__table__).where(CostRow.run_id.in_(runs)),
        select(BudgetRow.__table__).where(BudgetRow.run_id.in_(runs)),
        # A part of a union may have been launched again by itself.
        select(ExperimentRow.name, ExperimentRow.spec).where(ExperimentRow.name.in_((study, *parts))),
    ]
    latest: tuple[Any, ...] = (PublishedRow.updated_at, NoteRow.id, TagRow.id, RunRow.id, NeedRow.run_id)
    latest += (AcceptanceRow.created_at, RetractionRow.created_at, RegistrationRow.created_at)
    queries += (select(func.count(), func.max(column)) for column in latest)
    with store.reading() as connection:
        for query in queries:
            yield sorted(map(tuple, connection.execute(query)))  # the first columns differ
