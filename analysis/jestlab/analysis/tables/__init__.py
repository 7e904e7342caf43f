"""Make a table by its name: `table(store, "summary", ["comparison"])`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import published
from ..claims import parts_of, verdicts
from ..costs import Scope
from ..custom import Loader, Results, load
from ..errors import RequestError
from ..frames import Frames
from ..provenance.warnings import Origins
from ..results import Snapshot, opens_store
from ..shape import Shape as Shape
from ..tuned import BestOf, with_best
from ..units import near, some
from .claims import claims_table
from .core import Table as Table
from .custom import custom_table
from .final_results import Finals as Finals
from .final_results import finals as finals
from .paper import LAYOUTS as LAYOUTS
from .paper import paper_table as paper_table
from .summary import speedup_table as speedup_table
from .summary import summary as summary

_OF_ONE_EXPERIMENT = {"summary": summary, "speedups": speedup_table}

NAMES: tuple[str, ...] = (*_OF_ONE_EXPERIMENT, "scaling", "claims", *LAYOUTS)
"""Names of the built-in tables: the results of one experiment, claims, and the tables of the paper."""

_WHOLE_TABLE = Shape()


@opens_store
def table(
    store: Snapshot,
    name: str,
    studies: Sequence[str] = (),
    *,
    baseline: str | None = None,
    scope: Scope = "scoring",
    with_published: bool = True,
    score: Sequence[str] | None = None,
    best: Mapping[str, BestOf] | None = None,
    x: str | None = None,
    by: Sequence[str] = (),
    to: float = 10.0,
    options: Mapping[str, Any] | None = None,
    own: Loader | None = None,
    shape: Shape = _WHOLE_TABLE,
) -> Table:
    """Make a table.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        name: One of `NAMES`, another published table, or custom code.
        studies: Experiments in the table: one for summary, speedups, scaling, and custom code; one or more
            for claims; any number for other tables.
        baseline: Label or run to compare with; None for each study's own baseline.
        scope: What counts as FLOPs. Claims ignore it: they use the scope of their study.
        with_published: Whether the paper's tables also show published rows.
        score: Evaluations whose mean is the score; None for the study's own score. Not for claims.
        best: Rows of the best runs, which replace these runs: see `tuned.with_best`. Not for claims.
        x, by, to: Options of scaling: see `figures.scaling.scaling`.
        options: Arguments of custom code.
        own: Function that imports custom code; None if custom code may not be executed.
        shape: What to show of the table.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: The table or an experiment doesn't exist, the table is empty, or custom code fails.
    """
    studies = list(dict.fromkeys(studies))
    used: list[Frames] = []

    def results_of(study: str) -> Frames:
        frames = store.frames(study)
        frames = frames.scored_by(score) if score else frames
        frames = with_best(store, frames, best or {}, [*shape.named(frames), baseline])
        used.append(frames)
        return shape.of_results(frames, baseline)

    is_custom = name not in NAMES and (own is not None or ":" in name)
    needs_one = is_custom or name in (*_OF_ONE_EXPERIMENT, "scaling")
    if (needs_one and len(studies) != 1) or (name == "claims" and not studies):
        known = some(store.experiments)
        hint = f"name one of {known}" if known else "none exists yet, launch one: jestlab launch STUDY"
        raise RequestError(f"table {name!r} shows an experiment: {hint}")
    if is_custom:
        code = load(own, studies[0], "table", name)
        access = Results(store, studies[0], lambda: results_of(studies[0]), baseline, scope)
        result = custom_table(code, access, options or {})
    elif name == "claims":
        if baseline is not None or score or best:
            raise RequestError("claims name their runs and measures: leave out baseline, score, and best")
        result = _claims(store, studies, shape.digits)
    elif name == "scaling":
        from ..figures.scaling import scaling  # imports NumPy, and tables

        frames = results_of(studies[0])
        names = shape.named(frames)  # without the baseline, a point of another law
        plot = scaling(frames.only(names) if names else frames, x or "", by, to, baseline)
        assert plot.table is not None
        result = plot.table
    elif name in _OF_ONE_EXPERIMENT:
        result = _OF_ONE_EXPERIMENT[name](finals(results_of(studies[0]), baseline, scope))
    else:
        cells = published.read(store)
        tables = dict.fromkeys([*NAMES, *map(str, cells["table"])])
        if name not in tables:
            known = f"experiments: {some(store.experiments) or 'none'}; tables: {some(list(tables))}"
            hint = near(name, [*tables, *store.experiments]) or known
            raise RequestError(f"no table and no experiment {name!r}: {hint}")
        if not studies and baseline is not None:
            raise RequestError(f"baseline {baseline!r} is a run of an experiment: name the experiment too")
        own_results = [finals(results_of(study), baseline, scope) for study in studies]
        result = paper_table(name, cells if with_published else cells[:0], own_results)
    archives = {study: store.imported_from(study) for study in result.experiments or studies}
    imported = [f"{study} was imported from {archive}." for study, archive in archives.items() if archive]
    result = replace(result, own_notes=(*result.own_notes, *imported))
    return shape.applied(result.marked(Origins.read(store, result.experiments)), used)


@opens_store
def default_name(store: Snapshot, experiment: str) -> str:
    """Choose the table to show of an experiment: the claims of a union of studies, otherwise the summary."""
    has_claims = any(part.get("claims") for part in parts_of(store, experiment).values())
    return "claims" if has_claims else "summary"


def _claims(store: Snapshot, studies: Sequence[str], digits: int | None) -> Table:
    judged = verdicts.read(store, studies)
    if not judged:
        raise RequestError(
            f"experiment {studies[0]!r} makes no claims: write some under `claims` in its spec and launch it "
            "again (completed runs do not run again)"
        )
    by_study = len(studies) > 1 or any(each.contrast.experiment != studies[0] for each in judged)
    return claims_table(judged, " ".join(studies), by_study, digits)
