"""Fill the page of a study or a union: answer, claims, tables, figures, costs, failures, and recipe.

A union of studies has the claims of all, and then a section for each study with the reports of its spec.
"""

import contextlib
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ..claims import studies
from ..claims.judged import Judged, count_verdicts
from ..claims.verdicts import load as load_verdicts
from ..costs import Scope
from ..curves import score_curves
from ..custom import Loader, stem_of
from ..efforts import WORDS, cost_of, known
from ..errors import NotYet, RequestError
from ..figures import Plot, charts, draw, learnability, learning_curves, pareto
from ..figures.selected import Pictures
from ..frames import Frames
from ..goodput import by_run, total
from ..goodput import summary as summed_up
from ..intervals import INTERVAL
from ..provenance.history import History, load, recipe
from ..provenance.warnings import Origins
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from ..tables import Finals, Shape, Table, finals, speedup_table, summary
from ..tables import table as named_table
from ..tables.claims import MARKS, claims_table
from ..tables.core import BEST, records
from ..tables.summary import comparisons, factor_text
from ..units import duration, flops, sentence
from .answer import Answer, answer, verdict_of
from .page import MOST_ROWS, FigurePart, PageSection, ReportPage, TablePart, progress
from .tables import cost_table, failure_table, number_of

_CHARTS = {"curves": "Learning curves", "pareto": "Score against cost"}


@opens_store
def gather(
    store: Snapshot,
    experiment: str,
    baseline: str | None = None,
    scope: Scope | None = None,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> ReportPage:
    """Collect the contents of an experiment's page from one moment of the store.

    The page of a union shows its studies one after the other, without interactive figures.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment.
        baseline: Label or run to compare with; None for the baseline that the study's reports name, or else
            its first non-reference run. Each study of a union sets baseline and scope separately.
        scope: Which FLOPs count; None for the scope that the study's reports name, or else scoring.
        own: Imports custom figures and tables that specs ask for; None if custom code may not be executed.
        pictures: Reads the selected examples of runs; None if they can't be read.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The URL doesn't name a results store, the experiment or the baseline doesn't exist, or a
            baseline or scope is given for a union.
    """
    store.check_known(experiment)
    history, study = store.once(load, experiment), store.once(studies)[experiment]
    assert history is not None
    makers = {"own": own, "pictures": pictures}
    claims = None
    if judged := load_verdicts(store, experiment):
        table = claims_table(judged, experiment, by_study=bool(study.parts))
        claims = TablePart("claims", "Claims", table, tuple(judged))
    if not study.parts:
        return _study(_Contents(store, history, scope or study.scope, makers, baseline), claims)
    if baseline is not None or scope is not None:
        raise RequestError(
            f"{experiment} is a union, whose studies set baseline and scope: report one of these instead"
        )
    none = () if claims else ("None of the studies makes a claim.",)
    sections = [PageSection("claims", "Claims", texts=none, claims=claims)]
    sections += [_part(store, name, spec, claims, makers) for name, spec in study.parts.items()]
    histories = [history, *filter(None, (store.once(load, name) for name in study.parts))]
    reply = Answer(claims.table.caption, *verdict_of(judged, history.question)) if claims else Answer("")
    facts = _facts(history, len(study.parts))
    return ReportPage(store.url, histories, {}, reply, tuple(sections), facts)


@opens_store
def read_answer(store: Snapshot, experiment: str) -> Answer:
    """Return the answer of an experiment's page without drawing figures; empty without results."""
    judged, study = load_verdicts(store, experiment), store.once(studies)[experiment]
    if not study.parts:
        with contextlib.suppress(NotYet):
            results = finals(store.frames(experiment), scope=study.scope)
            return answer(summary(results).marked(Origins.read(store, [experiment])), results, judged)
    question = str(study.spec.get("question") or "")
    return Answer(count_verdicts(judged), *verdict_of(judged, question)) if judged else Answer("")


# ---- a study

_TABLE_OPTIONS = {"baseline", "scope", "score", "best", "options", "x", "by", "to"}


@dataclass
class _Contents:
    """Collects tables and figures of a study.

    Attributes:
        scope: Which FLOPs count.
        makers: The arguments `own` and `pictures` of `gather`, by name.
        chosen: Label or run to compare with; None for the study's own baseline.
        missing: Heading of a table or figure that could not be made → the reason.
    """

    store: Snapshot
    history: History
    scope: Scope
    makers: Mapping[str, Any]
    chosen: str | None = None
    tables: list[TablePart] = field(default_factory=list)
    figures: list[FigurePart] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def frames(self) -> Frames | None:
        """The results; None if nothing has been evaluated yet."""
        with contextlib.suppress(NotYet):
            return self.store.frames(self.history.experiment)
        return None

    @cached_property
    def baseline(self) -> str | None:
        """Label of the baseline; None without results."""
        return self.frames.baseline(self.chosen) if self.frames else None

    def add_results(self, frames: Frames, judged: Sequence[Judged]) -> Answer:
        """Add the tables that every page has, and return the answer."""
        try:
            results = finals(frames, self.baseline, self.scope)
        except NotYet as error:
            self.missing["Final scores"] = str(error)
            return Answer("No run has completed yet.")
        origins = Origins.read(self.store, [frames.experiment])
        table = summary(results).marked(origins)
        self.tables.append(_summary_part(table, results))
        with contextlib.suppress(NotYet):  # raised if the baseline has not completed
            if len(frames.competitors) > 1:
                self.tables.extend(_of_runs("speedups", speedup_table(results).marked(origins)))
        return answer(table, results, judged)

    def add_charts(self, frames: Frames) -> None:
        """Add the interactive figures that every page has, with a variant for each known effort or cost."""
        curves, total = score_curves(frames, self.scope), len(frames.competitors)
        spec = self.history.spec
        few = f" Drawn: {charts.MOST_SERIES} of {total:,} labels, the baseline and those with the best score."
        best = _best(frames, curves, self.baseline) if total > charts.MOST_SERIES else frames
        few = "" if best is frames else few
        efforts = known(curves)
        cost = cost_of(curves[curves["final"]])
        costs = [cost, *(each for each in efforts if each not in (cost, "examples_seen"))]
        for name, axes in {"curves": efforts or ["examples_seen"], "pareto": costs}.items():
            # Print options of the spec's first report of this kind, over those of the study.
            sheets = (each.get("figure") or {} for each in spec.get("reports", []) if each["kind"] == name)
            sheet = Sheet(**next(sheets, {})).over(Sheet(**spec.get("figure") or {}))
            variants: dict[str, dict[str, Any]] = {}
            plots: list[Plot] = []
            for effort in axes:
                try:
                    if name == "curves":
                        plot = learning_curves(best, self.baseline, effort, self.scope)
                    else:
                        plot = charts.limited(pareto(frames, self.baseline, self.scope, over=effort))
                except NotYet as error:
                    if variants:  # only unfinished runs have this effort
                        continue
                    self.missing[_CHARTS[name]] = str(error)
                    break
                stem = f"{name}_{WORDS[effort].name}" if variants else name
                texts = replace(plot.texts, caption=plot.texts.caption + few)
                plot = replace(plot, name=stem, sheet=sheet, texts=texts)
                variant = charts.curves(plot) if name == "curves" else charts.pareto(plot)
                variant["about"] += few
                variants[WORDS[effort].axis] = variant | {"caption": texts.caption, "printed": stem}
                plots.append(plot)
            if variants:
                part = FigurePart(name, _CHARTS[name], tuple(plots), self.history.experiment, variants)
                self.figures.append(part)

    def add_requested(self) -> None:
        """Add the tables and figures that the study's spec asks for, in order, unless the page has them."""
        experiment, frames = self.history.experiment, self.frames
        page = {"baseline": self.baseline, "scope": self.scope}
        # Name of each table and figure of every page → horizontal axes of an interactive figure.
        axes = {part.name: {*part.variants} for part in self.figures}
        axes |= {part.name: set() for part in self.tables}
        names = Counter([*axes])
        for report in self.history.spec.get("reports", []):
            options = {key: value for key, value in report.items() if value not in (None, [], ())}
            is_table = options.pop("kind") == "table"
            name = str(options.pop("name", "summary")) if is_table else str(report["kind"])
            stem = stem_of(name)
            title = _heading(stem)
            if name == "claims" and self.history.spec.get("claims"):  # the page has a list of them
                continue
            try:
                if frames and "best" in options:  # which may add the baseline, or replace that of the page
                    options.setdefault("baseline", None)
                elif frames and "baseline" in options:
                    options["baseline"] = frames.baseline(options["baseline"])
                elif (
                    frames and "runs" in options and self.baseline not in frames.only(options["runs"]).labels
                ):
                    options["baseline"] = None
                options = page | options
                others = {key for key, value in options.items() if key not in page or page[key] != value}
                is_default = name in axes and others <= {"figure", "published", "over"}
                over = WORDS.get(options.get("over", ""))
                if is_default and (over is None or over.axis in axes[name]):
                    continue
                if count := names[stem]:
                    title = f"{title}: {_options_in_words(report) or count + 1}"
                part = f"{stem}-{count + 1}" if count else stem
                if is_table:
                    given = {key: value for key, value in options.items() if key in _TABLE_OPTIONS}
                    table = named_table(
                        self.store, name, [experiment], own=self.makers["own"], shape=Shape(**options),
                        with_published=options.get("published", True), **given,
                    )  # fmt: skip
                    if any(table.markdown() == other.table.markdown() for other in self.tables):
                        continue
                    self.tables.append(TablePart(part, title, table))
                else:
                    options |= {"sheet": Sheet(**options.pop("figure", {})), **self.makers}
                    plot = replace(draw(name, self.store, experiment, **options), name=part)
                    self.figures.append(FigurePart(part, title, (plot,), experiment))
                    if plot.table:
                        table = plot.table.marked(Origins.read(self.store, [experiment]))
                        self.tables.append(TablePart(f"{part}-table", title, table))
                names[stem] += 1
            except RequestError as error:
                self.missing[title] = str(error)


def _study(body: _Contents, claims: TablePart | None) -> ReportPage:
    """Collect the contents of the page of a study."""
    store, history, frames = body.store, body.history, body.frames
    reply = Answer("Nothing has been evaluated yet.")
    with contextlib.suppress(NotYet):
        if frames is not None:
            reply = body.add_results(frames, claims.judged if claims else ())
            body.add_charts(frames)
    body.add_requested()
    if all(part.name != "learnability" for part in body.figures):
        with contextlib.suppress(NotYet):
            plot = learnability(store, history.experiment)
            body.figures.append(FigurePart(plot.name, _heading(plot.name), (plot,), history.experiment))
    if claims is not None and (frames is None or len(frames.competitors) < 2):
        reply = Answer(claims.table.caption, *verdict_of(claims.judged, history.question))
    elif claims is None and body.figures and frames is None:
        reply = Answer("This study evaluates no run: it examines the selected examples.")
    hero = next((part for part in body.figures if part.variants), None)
    speedups = [part for part in body.tables if part.name == "speedups"]
    rows = (row for part in speedups for row in records(part.table.frame))
    faster = [row for row in rows if row.get("fewer_examples", 0) > 1]
    best, fewest = max(faster, key=lambda row: float(row["fewer_examples"]), default=None), ""
    if best:
        factor = factor_text(best, "examples_seen")
        fewest = f"{history.shown[best['label']]} {factor} fewer examples"
    sections = [
        PageSection("results", "Results", tables=[part for part in body.tables if part.name != "speedups"]),
        PageSection("claims", "Claims", claims=claims),
        PageSection("figures", "Figures", figures=[part for part in body.figures if part is not hero]),
        PageSection("not-made", "Not available yet", missing=body.missing),
        PageSection("speedups", "Speed-ups", tables=speedups, is_folded=True, result=fewest),
        *_spent(history),
        PageSection("reproduce", "How to reproduce", recipe=recipe(history, body.chosen, body.scope)),
    ]
    options, colors = {"baseline": body.baseline, "scope": body.scope}, store.colors(history.experiment)
    shown = tuple(section for section in sections if not section.is_empty)
    return ReportPage(store.url, [history], options, reply, shown, colors=colors, hero=hero)


def _spent(history: History) -> Iterator[PageSection]:
    """Yield the sections about costs and failures."""
    table, failures = cost_table(history), failure_table(history)
    texts = ["No run has a planned price or has taken any time yet."] * (table is None)
    texts += ["No attempt has failed."] * (failures is None)
    goodput = total(by_run(history.times).values())
    if goodput.ratio is not None:
        command = f"`jestlab status {shlex.quote(history.experiment)} --json`"
        texts.append(f"G{sentence(summed_up(goodput))[1:]} By run: {command}.")
    tables = _of_runs("costs", table) if table else []
    yield PageSection("costs", "Costs", texts, tables=tables, is_folded=True)
    if failures is not None:
        yield PageSection("failures", "Failures", tables=[TablePart("failures", "Failures", failures)])


def _of_runs(name: str, table: Table) -> list[TablePart]:
    """Return a table with a row for each label, without columns that say nothing."""
    hidden = table.limited(MOST_ROWS).constant - {"run"}
    return [TablePart(name, name.capitalize(), table, hidden=frozenset(hidden))]


def _summary_part(table: Table, results: Finals) -> TablePart:
    """Show the summary with score, difference, examples, cost, and speed-up; other columns can be chosen."""
    averaged, cost = results.frames.averaged, cost_of(results.runs)
    factors = (f"fewer_{WORDS[each].name}" for each in ("examples_seen", cost))
    scores = averaged if len(averaged) == 1 else ["score"]
    first = {"run", "delta", "examples_seen", cost, *factors, *scores}
    keys = {column.key for column in table.columns} if averaged else first
    hidden = (keys - first) | (table.limited(MOST_ROWS).constant - {"run", "score", *averaged})
    seeds = sorted({*table.frame.loc[~table.frame["apart"], "seeds"]} - {0})
    caption = ""  # a note marks numbers from one seed
    if seeds and seeds[-1] > 1:
        counts = "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
        caption = f"Mean of {counts} seeds [{INTERVAL}]; bold: {BEST}."
        caption += f" {sentence(note)}" if (note := comparisons(results)) else ""
    return TablePart(
        "summary", "Final scores", table, caption=caption, hidden=frozenset(hidden), sign=results.metric.sign
    )


def _best(frames: Frames, curves: pd.DataFrame, baseline: str | None) -> Frames:
    """Keep the references, the baseline, and the labels with the best scores, as many as a chart can show."""
    ends = curves.groupby(["label", "seed"])["score"].last().groupby("label").mean()
    scores = (ends * (1.0 if frames.no_score else frames.score.sign)).fillna(-math.inf).to_dict()
    order = sorted(frames.competitors, key=lambda label: (label != baseline, -scores.get(label, -math.inf)))
    return frames.only([*frames.reference_labels, *order[: charts.MOST_SERIES]])


# ---- reports of a spec


def _options_in_words(report: Mapping[str, Any]) -> str:
    """Describe the options that a report sets, as a heading: "baseline uniform, trajectories"."""
    words = []
    for key, value in {**report, **(report.get("options") or {})}.items():
        if key in ("kind", "name", "figure", "options") or value in (None, [], (), {}):
            continue
        if isinstance(value, bool):
            words.append(key if value else f"no {key}")
        else:
            words.append(f"{key} {' + '.join(map(str, value)) if isinstance(value, list | dict) else value}")
    return ", ".join(words)


def _heading(name: str) -> str:
    """Return the heading of a table or figure with a name."""
    return "LAION" if name == "laion" else name.replace("_", " ").capitalize()


# ---- a union


def _part(
    store: Snapshot,
    name: str,
    as_launched: Mapping[str, Any],
    claims: TablePart | None,
    makers: Mapping[str, Any],
) -> PageSection:
    """Return the section of a study in a union, with everything that its spec asks for."""
    judged = [each for each in claims.judged if each.contrast.experiment == name] if claims else []
    history, study = store.once(load, name), store.once(studies).get(name)
    section = PageSection(
        f"study-{name}",
        str(as_launched.get("question") or name),
        study=name,
        source=str(as_launched.get("paper") or ""),
        texts=[count_verdicts(judged, with_scale=False)] if judged else [],
        verdicts=[verdict for verdict in MARKS for each in judged if each.verdict == verdict],
    )
    if history is None or study is None or history.runs.empty:
        banner = ("Unfinished", f"Not launched yet: run `jestlab launch {shlex.quote(name)}`")
        return replace(section, banners=(banner,))
    body = _Contents(store, history, study.scope, makers)
    body.add_requested()
    banners = [("Unfinished", text)] if (text := progress(history)) else []
    if _run_keys(study.spec) != _run_keys(as_launched):
        text = "this study was later launched by itself with another spec; its current results are shown."
        banners.append(("Changed", text))
    # Several studies have tables and figures with the same name.
    tables = [replace(part, name=f"{name}-{part.name}") for part in body.tables]
    figures = [replace(part, name=f"{name}-{part.name}") for part in body.figures]
    return replace(section, banners=banners, tables=tables, figures=figures, missing=body.missing)


def _run_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a spec that determines its runs."""
    return {key: spec.get(key) for key in ("scale", "program", "base", "runs", "axes", "seeds")}


def _facts(history: History, studies: int) -> tuple[str, ...]:
    """Return sentences with the number of runs, the runs that sharing saved, and their total costs."""
    runs = history.runs["fingerprint"].nunique()
    study_of_run = history.runs["label"].str.partition("/")[0]
    alone = int(history.runs.groupby(study_of_run)["fingerprint"].nunique().sum())
    facts = [f"{number_of(runs, 'run')} in {studies} {'study' if studies == 1 else 'studies'}"]
    if alone > runs:
        facts.append(f"{alone:,} runs if launched separately: sharing saved {number_of(alone - runs, 'run')}")
    if (table := cost_table(history)) is not None:
        spent, planned, hours = table.frame.iloc[-1][["actual_flops", "planned_flops", "actual_hours"]]
        if spent > 0:
            facts.append(f"{flops(spent)} spent" + (f" of {flops(planned)} planned" if planned > 0 else ""))
        if hours > 1 / 3600:
            facts.append(f"{duration(hours)} of compute, all runs together")
    return tuple(facts)
