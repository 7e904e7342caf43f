"""The tables, by name, from a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import published
from ..claims import parts_of, verdicts
from ..costs import Scope
from ..curves import Crossing
from ..custom import Loader, Results, load
from ..frames import Frames
from ..provenance.soundness import Soundness
from ..results import Snapshot, opens_store
from ..units import nearest
from .claims import claims_table
from .core import Table
from .custom import custom_table
from .final_results import MEANS, Finals, Mean, finals
from .paper import LAYOUTS, paper_table
from .shape import Shape
from .speedups import speedup_table
from .summary import summary

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LAYOUTS",
    "MEANS",
    "NAMES",
    "Finals",
    "Mean",
    "Shape",
    "Table",
    "claims_table",
    "default_name",
    "finals",
    "paper_table",
    "speedup_table",
    "summary",
    "table",
]

WHOLE = Shape()
"""All rows and columns, in the table's own words."""

_OF_ONE_EXPERIMENT = {"summary": summary, "speedups": speedup_table}

NAMES: tuple[str, ...] = (*_OF_ONE_EXPERIMENT, "claims", *LAYOUTS)
"""What tables there are: of one experiment, the claims of experiments, and those of the paper."""


@opens_store
def table(
    store: Snapshot,
    name: str,
    studies: Sequence[str] = (),
    *,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
    with_published: bool = True,
    score: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    own: Loader | None = None,
    shape: Shape = WHOLE,
) -> Table:
    """Build a table by its name.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        name: One of `NAMES`, or of another published table in the store, or code of one's own (see `own`).
        studies: Experiments whose runs it shows: one for summary and speedups, one or more for claims, any
            number for the others. None means the experiment that is called as the table, where there is one
            and nothing is published in that table that would be shown.
        baseline: Label or run that own runs are compared with; of several experiments those have it that
            have such a run.
        scope: What counts as FLOPs; claims are judged by what their study counts.
        mean: Over which metrics a score is taken; of claims over all.
        crossing: Which crossing of the baseline's final score counts.
        with_published: Whether published rows are shown, too, where the table has such.
        score: Evaluations whose mean is the score; None for the studies' own. Claims say what they are
            measured by.
        options: Arguments of a table of one's own.
        own: Imports the code of one, and then knows more names; None where none may be executed.
        shape: What is shown of it.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: There is no such table or experiment, nothing to show in it, or code of one's own fails.
    """
    studies = list(dict.fromkeys(studies))
    seen: list[Frames] = []

    def results_of(study: str) -> Frames:
        frames = store.frames(study)
        seen.append(frames)
        named = baseline if len(studies) == 1 else None
        frames = shape.narrowed(frames, named) if shape.rows else frames
        return frames.scored_by(score) if score else frames

    if name not in NAMES and (own is not None or ":" in name):
        study = _only(store, name, studies)
        code = load(own, study, "table", name)
        made = custom_table(
            code, Results(store, study, lambda: results_of(study), baseline, scope), options or {}
        )
    else:
        if not studies and name in store.experiments:
            is_shown = with_published and name in set(published.read(store)["table"])
            studies = [] if is_shown else [name]
        if baseline is not None and not studies:
            raise ValueError(f"baseline {baseline!r} is a run of an experiment: name the experiment too")
        if name in _OF_ONE_EXPERIMENT:
            frames = results_of(_only(store, name, studies))
            made = _OF_ONE_EXPERIMENT[name](finals(frames, baseline, scope, mean, crossing))
        elif name == "claims":
            made = _claims(store, studies, baseline, score)
        else:
            cells = published.read(store)
            if name not in LAYOUTS:
                _check_published(name, cells, store.experiments)
            found = _all_finals([results_of(study) for study in studies], baseline, scope, mean, crossing)
            made = paper_table(name, cells if with_published else cells[:0], found)
    made = replace(made, notes=(*made.notes, *_imported(store, made.experiments or list(studies))))
    return shape.applied(made.marked(Soundness.read(store, made.experiments)), seen)


def _imported(store: Snapshot, shown: Sequence[str]) -> Iterator[str]:
    """Say which of the experiments that are shown were imported."""
    for study in shown:
        if archive := store.imported_from(study):
            yield f"{study} was imported from {archive}."


@opens_store
def default_name(store: Snapshot, experiment: str) -> str:
    """Choose the table that says most about an experiment: its summary, or the claims of a union of studies,
    which may have hundreds of labels.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Its name.
    """
    is_claiming = any(part.get("claims") for part in parts_of(store, experiment).values())
    return "claims" if is_claiming else "summary"


def _claims(
    store: Snapshot, studies: Sequence[str], baseline: str | None, score: Sequence[str] | None
) -> Table:
    if not studies:
        raise ValueError(f"table 'claims' shows an experiment: {_which(store)}")
    if baseline is not None:
        raise ValueError("claims name what they compare with: leave out the baseline")
    if score:
        raise ValueError("claims say what they are measured by: leave out the score")
    judged = verdicts.read(store, studies)
    if not judged:
        raise ValueError(
            f"experiment {studies[0]!r} makes no claims: write some under `claims` in its spec and launch it "
            "again (completed runs do not run again)"
        )
    by_study = len(studies) > 1 or any(each.experiment != studies[0] for each in judged)
    return claims_table(judged, " ".join(studies), by_study)


def _all_finals(
    own: list[Frames], baseline: str | None, scope: Scope, mean: Mean, crossing: Crossing
) -> list[Finals]:
    found, refused = [], []
    for frames in own:
        compared = baseline
        if baseline is not None and len(own) > 1:
            try:
                frames.label_of(baseline)
            except ValueError as error:
                refused.append(error)
                compared = None
        found.append(finals(frames, compared, scope, mean, crossing))
    if refused and len(refused) == len(own):
        raise refused[0]
    return found


def _check_published(name: str, cells: pd.DataFrame, studies: Sequence[str]) -> None:
    known = [str(table) for table in cells["table"].unique()]
    if name in known:
        return
    others = list(dict.fromkeys([*NAMES, *known]))
    near = nearest(name, [*NAMES, *known, *studies], others)
    raise ValueError(f"no table and no experiment {name!r}: {near}")


def _only(store: Snapshot, name: str, studies: Sequence[str]) -> str:
    if len(studies) != 1:
        raise ValueError(f"table {name!r} shows one experiment: {_which(store)}")
    return studies[0]


def _which(store: Snapshot) -> str:
    known = store.experiments
    return f"name one of {', '.join(known[:8])}" if known else "the store has none yet: jestlab launch STUDY"
