"""What the page of a union says: its studies one after the other, with verdicts, tables and figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..claims import Study, studies
from ..claims.evidence import VERDICTS
from ..claims.judged import Judged, count_verdicts
from ..claims.verdicts import load as load_verdicts
from ..custom import Loader
from ..figures import Plot
from ..figures.selected import Pictures
from ..frames import Frames, NotYet
from ..provenance.explain import Origins
from ..provenance.history import History
from ..provenance.history import load as load_history
from ..results import Snapshot, opens_store
from ..tables.claims import MARKS
from ..units import duration, flops
from .contents import Requested, claims_part, requested, unfinished
from .tables import TablePart, cost_breakdown


@dataclass(frozen=True)
class Section:
    """One study of a union.

    Attributes:
        name: Name of the study, and of its experiment in the store.
        question: What it asks; empty if it does not say.
        paper: Figure or table that it reproduces; empty if it does not say.
        unfinished: Its progress, in words; empty once all its runs have completed.
        reports: Tables and figures that its spec asks for, named as in the study's own folder.
        changed: Whether it has been launched on its own since, from another spec.
        judged: Its claims with their verdicts.
    """

    name: str
    question: str
    paper: str
    unfinished: str
    reports: Requested = field(default_factory=Requested)
    changed: bool = False
    judged: tuple[Judged, ...] = ()

    @property
    def tables(self) -> list[TablePart]:
        """Its tables, whose names begin with the study's, since several studies have tables of one name."""
        return [replace(part, name=f"{self.name}-{part.name}") for part in self.reports.tables]

    @property
    def marks(self) -> list[str]:
        """Signs of the verdicts on its claims."""
        return [MARKS[verdict] for verdict in VERDICTS for each in self.judged if each.verdict == verdict]

    @property
    def verdicts(self) -> str:
        """Verdicts on its claims in words; empty if it claims nothing."""
        return count_verdicts([replace(each, scale="") for each in self.judged]) if self.judged else ""

    @property
    def command(self) -> str:
        """Command that writes the study's own page."""
        return f"jestlab report {shlex.quote(self.name)}"


@dataclass(frozen=True)
class UnionContents:
    """Everything that the page of a union says.

    Attributes:
        history: What the store knows of the union besides results.
        facts: Number of runs and what they took, a sentence each.
        unfinished: Its progress, in words; empty once all runs have completed.
        claims: Claims of all studies, with verdicts; None if none claims anything.
        sections: Its studies, in its order.
        origins: Runs and attempts behind its numbers.
    """

    history: History
    facts: tuple[str, ...]
    unfinished: str
    claims: TablePart | None
    sections: tuple[Section, ...]
    origins: Origins

    @property
    def tables(self) -> list[TablePart]:
        """All tables of the page."""
        own = [] if self.claims is None else [self.claims]
        return [*own, *(part for section in self.sections for part in section.tables)]

    @property
    def plots(self) -> list[Plot]:
        """All figures of the page, as they are printed."""
        return [still.plot for section in self.sections for still in section.reports.stills]

    @property
    def verdicts(self) -> str:
        """How many claims have which verdict; empty if there are none."""
        return self.claims.table.caption if self.claims else ""


@opens_store
def gather_union(
    store: Snapshot, experiment: str, own: Loader | None = None, pictures: Pictures | None = None
) -> UnionContents:
    """Collect everything that the page of a union says, from one moment of the store.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the union's experiment.
        own: Imports the figures and tables of one's own that the specs ask for.
        pictures: Reads what runs selected; None where that cannot be read.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If the URL names no results store.
    """
    known = store.once(studies)
    history = store.once(load_history, experiment)
    assert history is not None
    parts = known[experiment].parts
    judged = load_verdicts(store, experiment)
    read = {name: found for name in parts if (found := _read(store, name)) is not None}
    sections = [
        _section(store, *read[name], known[name], spec, own, pictures)
        if name in read
        else _not_launched(name, spec)
        for name, spec in parts.items()
    ]
    by_study = {name: tuple(each for each in judged if each.experiment == name) for name in parts}
    sections = [replace(section, judged=by_study[section.name]) for section in sections]
    return UnionContents(
        history=history,
        facts=tuple(_facts(history, len(parts))),
        unfinished=unfinished(history),
        claims=claims_part(judged, experiment, by_study=True),
        sections=tuple(sections),
        origins=Origins([history, *(of_part for of_part, _ in read.values())]),
    )


def _read(store: Snapshot, name: str) -> tuple[History, Frames | None] | None:
    """What the store has of a study; None if it has nothing."""
    history = store.once(load_history, name)
    if history is None or history.runs.empty:
        return None
    try:
        return history, store.frames(name)
    except NotYet:  # nothing has been evaluated, but there may be training metrics and diagnoses
        return history, None


def _not_launched(name: str, spec: Mapping[str, Any]) -> Section:
    question, paper = (str(spec.get(key) or "") for key in ("question", "paper"))
    return Section(name, question, paper, f"Not launched yet: run jestlab launch {shlex.quote(name)}")


def _section(
    store: Snapshot,
    history: History,
    frames: Frames | None,
    study: Study,
    as_launched: Mapping[str, Any],
    own: Loader | None,
    pictures: Pictures | None,
) -> Section:
    """A study with all that its spec asks for."""
    name = history.experiment
    baseline = None if frames is None else frames.baseline()
    reports = requested(
        store, history, frames, baseline, study.scope, everything=True, own=own, pictures=pictures
    )
    return Section(
        name=name,
        question=history.question,
        paper=history.paper,
        unfinished=unfinished(history),
        reports=reports,
        changed=_science(study.spec) != _science(as_launched),
    )


def _science(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a spec that decides its runs."""
    return {key: spec.get(key) for key in ("scale", "program", "base", "runs", "axes", "seeds")}


def _facts(history: History, studies: int) -> list[str]:
    """Number of runs, runs saved by sharing, and what they took."""
    runs = history.runs["fingerprint"].nunique()
    studies_of_runs = history.runs["label"].str.partition("/")[0]
    alone = int(history.runs.groupby(studies_of_runs)["fingerprint"].nunique().sum())
    facts = [f"{_counted(runs, 'run')} in {studies} {'study' if studies == 1 else 'studies'}"]
    if alone > runs:
        facts.append(f"{alone:,} runs if launched separately: sharing saved {_counted(alone - runs, 'run')}")
    table = cost_breakdown(history)
    if table is not None:
        all_runs = table.frame.iloc[-1]
        spent, planned, hours = (
            float(all_runs[name]) for name in ("actual_flops", "planned_flops", "actual_hours")
        )
        if spent > 0:
            facts.append(f"{flops(spent)} spent" + (f" of {flops(planned)} planned" if planned > 0 else ""))
        if hours > 1 / 3600:
            facts.append(f"{duration(hours)} of compute, all runs together")
    return facts


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
