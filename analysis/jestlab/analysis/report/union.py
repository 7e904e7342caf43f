"""The page of a union: its studies one after the other, with their verdicts, tables, and figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..claims import Study, studies
from ..claims.judged import count_verdicts
from ..claims.verdicts import load as load_verdicts
from ..custom import Loader
from ..figures.selected import Pictures
from ..provenance.history import History, load
from ..results import Snapshot, opens_store
from ..tables.explain import Origins
from ..units import duration, flops
from .answer import Answer
from .page import PageSection, ReportPage
from .requested import requested
from .study import claims_part, results_of, unfinished
from .tables import cost_table, number_of


@opens_store
def union_page(
    store: Snapshot, experiment: str, own: Loader | None = None, pictures: Pictures | None = None
) -> ReportPage:
    """Collect the contents of the page of a union; arguments as of `report.build`."""
    known = store.once(studies)
    history = store.once(load, experiment)
    assert history is not None
    parts = known[experiment].parts
    judged = load_verdicts(store, experiment)
    histories = {name: store.once(load, name) for name in parts}
    claims = claims_part(judged, experiment, by_study=True) if judged else None
    none = () if claims else ("None of the studies makes a claim.",)
    sections = [PageSection("claims", "Claims", texts=none, claims=claims)]
    for name, spec in parts.items():
        section = _study(store, histories[name], known.get(name), name, spec, own, pictures)
        if verdicts := [
            each for each in (claims.claims if claims else ()) if each["judged"].experiment == name
        ]:
            verdict = count_verdicts([replace(each["judged"], scale="") for each in verdicts])
            section = replace(section, verdicts=verdicts, verdict=verdict)
        sections.append(section)
    return ReportPage(
        store.url, history, {}, Answer(claims.table.caption if claims else ""), unfinished(history),
        tuple(sections), Origins([history, *(each for each in histories.values() if each is not None)]),
        facts=tuple(_facts(history, len(parts))), is_union=True,
    )  # fmt: skip


def _study(
    store: Snapshot,
    history: History | None,
    study: Study | None,
    name: str,
    as_launched: Mapping[str, Any],
    own: Loader | None,
    pictures: Pictures | None,
) -> PageSection:
    """Make the section of a study, with everything that its spec asks for."""
    question, paper = (str(as_launched.get(key) or "") for key in ("question", "paper"))
    if history is None or study is None or history.runs.empty:
        banner = ("Unfinished", f"Not launched yet: run `jestlab launch {shlex.quote(name)}`")
        return PageSection(f"study-{name}", question or name, study=name, source=paper, banners=(banner,))
    frames = results_of(store, name, {})
    baseline = None if frames is None else frames.baseline()
    made = requested(store, history, frames, baseline, study.scope, None, own, pictures)
    banners = [("Unfinished", text)] if (text := unfinished(history)) else []
    if _science(study.spec) != _science(as_launched):
        banners.append(
            (
                "Changed",
                "this study was launched by itself since, with another spec; its current results are shown.",
            )
        )
    return PageSection(
        f"study-{name}",
        history.question or name,
        study=name,
        source=history.paper,
        banners=tuple(banners),
        # Several studies have tables and figures with the same name.
        tables=tuple(replace(part, name=f"{name}-{part.name}") for part in made.tables),
        figures=tuple(replace(part, name=f"{name}-{part.name}") for part in made.figures),
        missing=made.missing,
    )


def _science(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a spec that decides its runs."""
    return {key: spec.get(key) for key in ("scale", "program", "base", "runs", "axes", "seeds")}


def _facts(history: History, studies: int) -> list[str]:
    """Count runs, and runs saved by sharing; sum up their costs."""
    runs = history.runs["fingerprint"].nunique()
    study_of_run = history.runs["label"].str.partition("/")[0]
    alone = int(history.runs.groupby(study_of_run)["fingerprint"].nunique().sum())
    facts = [f"{number_of(runs, 'run')} in {studies} {'study' if studies == 1 else 'studies'}"]
    if alone > runs:
        facts.append(f"{alone:,} runs if launched separately: sharing saved {number_of(alone - runs, 'run')}")
    table = cost_table(history)
    if table is not None:
        of_all = table.frame.iloc[-1]
        spent, planned, hours = (
            float(of_all[key]) for key in ("actual_flops", "planned_flops", "actual_hours")
        )
        if spent > 0:
            facts.append(f"{flops(spent)} spent" + (f" of {flops(planned)} planned" if planned > 0 else ""))
        if hours > 1 / 3600:
            facts.append(f"{duration(hours)} of compute, all runs together")
    return facts
