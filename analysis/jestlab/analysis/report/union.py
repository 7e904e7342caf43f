"""What the page of a union says: its studies one after the other, with verdicts, tables and figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..claims import Study, studies
from ..connection import connect
from ..explain import Origins
from ..frames import Frames
from ..frames import load as load_frames
from ..units import duration, flops
from ..verdicts import load as load_verdicts
from .asked import asked
from .claimed import claims_part
from .contents import compared_with, unfinished
from .history import History
from .history import load as load_history
from .ledger import ledger
from .parts import ClaimsPart, StillPart, TablePart

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class Section:
    """One study of a union.

    Attributes:
        name: Its name: the experiment that it is in the store.
        question: What it asks; empty if it does not say.
        paper: The figure or table that it reproduces; empty if it does not say.
        scale: The scale it was last launched at; empty if it has none.
        unfinished: How far it is, in words; empty once all its runs have completed.
        tables: What its spec asks for, named after it.
        stills: The same of figures, named as in the study's own folder.
        not_made: What of it cannot be made → why, one sentence.
        changed: Whether it has been launched by itself since, from another spec.
    """

    name: str
    question: str
    paper: str
    scale: str
    unfinished: str
    tables: tuple[TablePart, ...] = ()
    stills: tuple[StillPart, ...] = ()
    not_made: Mapping[str, str] = field(default_factory=dict)
    changed: bool = False

    @property
    def command(self) -> str:
        """What makes its own page."""
        return f"jestlab report {shlex.quote(self.name)}"


@dataclass(frozen=True)
class UnionContents:
    """All that the page of a union says.

    Attributes:
        history: What the store knows of the union besides results.
        facts: What it took, a sentence each.
        unfinished: How far it is, in words; empty once all runs have completed.
        claims: The claims of all studies, with verdicts; None where none claims anything.
        sections: Its studies, in its order.
        origins: What is behind the runs.
    """

    history: History
    facts: tuple[str, ...]
    unfinished: str
    claims: ClaimsPart | None
    sections: tuple[Section, ...]
    origins: Origins

    @property
    def tables(self) -> list[TablePart]:
        """Every table of it."""
        own = [] if self.claims is None else [self.claims]
        return [*own, *(part for section in self.sections for part in section.tables)]

    @property
    def stills(self) -> list[StillPart]:
        """Every figure of it."""
        return [still for section in self.sections for still in section.stills]


def gather_union(url: str, experiment: str) -> UnionContents:
    """Everything that the page of a union says, from one moment of the store.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store.
    """
    with connect(url) as connection:
        known = studies(connection)
        history = load_history(connection, experiment)
        assert history is not None
        parts = known[experiment].parts
        judged = load_verdicts(connection, experiment, known)
        read = {name: _read(connection, name) for name in parts}
        origins = Origins.load(connection, [experiment, *(name for name in parts if read[name] is not None)])
    sections = []
    for name, spec in parts.items():
        found = read[name]
        sections.append(
            _not_launched(name, spec) if found is None else _section(url, *found, known[name], spec)
        )
    return UnionContents(
        history=history,
        facts=tuple(_facts(history, len(parts))),
        unfinished=unfinished(history),
        claims=claims_part(judged, experiment, by_study=True),
        sections=tuple(sections),
        origins=origins,
    )


def _read(connection: Connection, name: str) -> tuple[History, Frames | None] | None:
    """What the store has of a study; None where it has nothing."""
    history = load_history(connection, name)
    if history is None or history.runs.empty:
        return None
    try:
        return history, load_frames(connection, name)
    except ValueError:  # nothing has been evaluated: training metrics and diagnoses are there all the same
        return history, None


def _not_launched(name: str, spec: Mapping[str, Any]) -> Section:
    return Section(
        name=name,
        question=str(spec.get("question") or ""),
        paper=str(spec.get("paper") or ""),
        scale=str(spec.get("scale") or ""),
        unfinished=f"Not launched yet: jestlab launch {shlex.quote(name)}",
    )


def _section(
    url: str, history: History, frames: Frames | None, study: Study, as_launched: Mapping[str, Any]
) -> Section:
    """A study with all that its spec asks for."""
    name = history.experiment
    baseline = None if frames is None else frames.baseline(compared_with(study, frames))
    told = asked(url, history, frames, baseline, study.scope, everything=True)
    return Section(
        name=name,
        question=history.question,
        paper=history.paper,
        scale=history.scale,
        unfinished=unfinished(history),
        tables=tuple(replace(part, name=f"{name}-{part.name}") for part in told.tables),
        stills=told.stills,
        not_made=told.gaps,
        changed=_science(study.spec) != _science(as_launched),
    )


def _science(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What of a spec decides its runs."""
    return {key: spec.get(key) for key in ("scale", "program", "base", "runs", "axes", "seeds")}


def _facts(history: History, studies: int) -> list[str]:
    """How many runs, how many were spared by sharing, and what they took."""
    runs = history.runs["fingerprint"].nunique()
    alone = int(
        history.runs.groupby(history.runs["label"].str.partition("/")[0])["fingerprint"].nunique().sum()
    )
    counted = f"{runs:,} {'run' if runs == 1 else 'runs'}"
    of = f"{studies} {'study' if studies == 1 else 'studies'}"
    facts = [f"{counted} in {of}"]
    if alone > runs:
        facts.append(
            f"the studies by themselves would be {alone:,}: sharing saved {alone - runs:,} "
            f"{'run' if alone - runs == 1 else 'runs'}"
        )
    table = ledger(history)
    if table is not None:
        all_runs = table.frame.iloc[-1]
        spent, planned, hours = (
            float(all_runs[name]) for name in ("actual_flops", "planned_flops", "actual_hours")
        )
        if spent > 0:
            facts.append(f"{flops(spent)} spent" + (f" of {flops(planned)} planned" if planned > 0 else ""))
        if hours > 1 / 3600:
            facts.append(f"{duration(hours)} of computing, all runs together")
    return facts
