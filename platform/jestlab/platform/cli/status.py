"""`jestlab status`, `watch`, and `attach`: states, progress, and costs of runs, once or live."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import IO, Any

import click
from rich.text import Text

from jestlab.analysis import units
from jestlab.analysis.goodput import Goodput, by_run, summary, total
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import EXPERIMENT, SUBJECT
from jestlab.platform.cli.options import examples, lab_json_options, same_lab_options
from jestlab.platform.cli.output import print_json, say, show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import display
from jestlab.platform.launch.status import STARTING, RunStatus, Watch, read_status, reason_lines
from jestlab.platform.logs import one_line
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.planning.unreported import unreported
from jestlab.platform.render import (
    STATE_STYLES,
    Block,
    TextColumn,
    has_styles,
    in_state,
    render,
    result_blocks,
    state_counts,
    styled,
    table_of,
    width,
)
from jestlab.platform.store.annotations import all_tags
from jestlab.platform.store.identity import lab_places
from jestlab.platform.store.records import WAITING, ExperimentSummary, RunState, Spending
from jestlab.platform.store.spending import attempt_times
from jestlab.platform.store.store import Store
from jestlab.platform.words import counted

# ---- columns


def _numeric(
    header: str, read: Callable[[RunStatus], float | None], write: Callable[[float], str], importance: int
) -> TextColumn:
    """Return a column of numbers. Cells are empty where `read` returns None."""

    def cell(row: RunStatus) -> str:
        return "" if (value := read(row)) is None else write(value)

    return TextColumn(header, cell, importance, True)


def _steps(row: RunStatus) -> str:
    return "" if row.run.total_steps is None else f"{row.run.step}/{row.run.total_steps}"


_RUN_COLUMNS = (
    TextColumn("run", lambda row: one_line(row.run.label)),
    TextColumn("seed", lambda row: str(row.run.seed), right=True),
    TextColumn("state", lambda row: in_state(row.run.state)),
    TextColumn("step", _steps, 60, True),
)
_ATTEMPTS = TextColumn("attempts", lambda row: str(row.run.attempts), 40, True)
_PROGRESS_COLUMNS = (
    _numeric("loss", lambda row: row.loss, "{:.4g}".format, 55),
    _numeric("examples/s", lambda row: row.rate, "{:,.0f}".format, 45),
    _numeric("left", lambda row: row.progress.seconds_left, lambda s: units.duration(s / 3600), 65),
    _numeric("FLOPs so far", lambda row: row.cost.actual_flops, units.flops, 35),
    _numeric("planned", lambda row: row.cost.total_flops, units.flops, 20),
)

_COSTS: Mapping[
    str, tuple[Callable[[float], str], Callable[[Spending], tuple[float | None, float | None]]]
] = {
    "FLOPs": (units.flops, lambda cost: (cost.actual_flops, cost.total_flops)),
    "chip-hours": (
        units.hours,
        lambda cost: (cost.actual_chip_hours, None if cost.is_local else cost.planned_chip_hours),
    ),
    "hours": (
        units.duration,
        lambda cost: (cost.actual_hours, cost.planned_chip_hours if cost.is_local else None),
    ),
    "$": (units.dollars, lambda cost: (cost.actual_dollars, cost.planned_dollars)),
}
"""Kind of cost → function that formats an amount, and one that reads the actual and the planned amount."""


def _cost_columns(kind: str) -> list[TextColumn]:
    """Return the columns of a kind of cost: actual, planned, and drift."""
    write, read = _COSTS[kind]

    def drift(row: RunStatus) -> str:
        actual, planned = read(row.cost)
        if actual is None or not planned or (actual <= planned and row.run.state != RunState.COMPLETED):
            return ""  # empty while a run is active and within its plan
        return f"× {actual / planned:.2f}"

    return [
        _numeric(kind, lambda row: read(row.cost)[0], write, 50),
        _numeric("planned", lambda row: read(row.cost)[1], write, 20),
        TextColumn("drift", drift, 30, True),
    ]


def _totals(rows: Iterable[RunStatus], unknown: float | None = None) -> dict[str, tuple[str, float]]:
    """Return, for each kind of cost with a plan, a text and the ratio of actual to planned cost.

    The text is, for example, "1.2 of 3.4 chip-hours".

    Args:
        rows: Rows of runs; repeated rows don't count.
        unknown: Amount to use for a run whose actual cost is unknown; None to omit such runs.
    """
    costs, totals = [row.cost for row in rows if not row.is_repeat], {}
    for kind, (write, read) in _COSTS.items():
        given = ((unknown if actual is None else actual, planned) for actual, planned in map(read, costs))
        if pairs := [(actual, planned) for actual, planned in given if actual is not None and planned]:
            actual, planned = (sum(side) for side in zip(*pairs, strict=True))
            unit = f" {kind}" if kind == "chip-hours" else ""
            totals[kind] = (f"{write(actual)} of {write(planned)}{unit}", actual / planned)
    return totals


# ---- status


@click.command(
    epilog=examples("status", "status quickstart", "status quickstart/joint", "status quickstart --json")
)
@click.argument("name", type=SUBJECT, metavar="[SUBJECT]", required=False)
@lab_json_options()
def status_command(name: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show the runs of SUBJECT with their states and costs; without SUBJECT, show all experiments.

    SUBJECT is an experiment, or some of its runs: EXPERIMENT/RUN, or EXPERIMENT/RUN/SEED.

    The table has the runs that have started. Below it are the reasons of failures, with the path of a log,
    and why runs wait, with their estimated start if the executor reports one, and possible actions to
    start them.

    The table shows actual and planned costs. Drift is actual divided by planned cost, for completed runs and
    for runs that exceed their plan. FLOPs count useful work only; chip-hours count all attempts, so work
    repeated after a failure or a preemption appears as drift. Goodput is the useful share of the machines'
    time; --json and the experiment's page have it by run.
    """
    from jestlab.platform.launch import launcher_job

    if name is None:
        store = Store.open_readonly(lab.store_url)
        experiments = store.experiments() if store else []
        tags = all_tags(store) if store else {}
        show(as_json, _experiments_data(experiments, tags), _experiments_table(experiments, tags))
        return
    store = naming.existing_store(lab)
    named = naming.find_runs(store, name)
    experiment, wanted = named.experiment, {(row.label, row.seed) for row in named.runs}
    rows = [row for row in read_status(store, experiment) if (row.run.label, row.run.seed) in wanted]
    tags = all_tags(store)
    goodputs = by_run(attempt_times(store, experiment))
    changes, lab_paths = changes_of(store, experiment), lab_places(store.engine)
    data = [
        row.as_data()
        | {
            "lab": None if row.lease is None else lab_paths.get(row.lease.lab or ""),
            "changed": list(changes.changed.get(row.run.fingerprint, ())),
            "retracted": changes.retracted.get(row.run.fingerprint),
            "tags": tags.get(row.run.fingerprint, []),
            "goodput": goodputs.get(row.run.fingerprint, Goodput()).as_data(),
        }
        for row in rows
    ]
    known = {row.run.fingerprint for row in rows} & goodputs.keys()
    goodput = summary(total(goodputs[fingerprint] for fingerprint in known))
    launcher = launcher_job.find(lab, experiment)
    launched = [] if launcher is None else [f"launcher: Slurm job {launcher.id}, {launcher.state}"]
    warnings = [*launched, *changes.lines(experiment), *unreported(lab.store_url, experiment)]
    show(as_json, data, [*_status_lines(rows, tags, lab, goodput), *warnings])


def _has_row(row: RunStatus) -> bool:
    """Return whether a run has a row in tables. Runs that wait for their first attempt are only counted."""
    return row.wait is None or row.run.attempts > 0


def _reasons(rows: Sequence[RunStatus], lab: Lab) -> list[Block]:
    lines = [styled(line) for line in reason_lines(rows, lab)]
    for state, style in STATE_STYLES.items():
        for line in lines:
            line.highlight_words([f" {state}:"], style)
    return ["", *lines] if lines else []


def _status_lines(
    rows: Sequence[RunStatus], tags: Mapping[str, Sequence[str]], lab: Lab, goodput: str
) -> Iterator[Block]:
    """Yield the table of runs, reasons, the total cost of completed runs, and the goodput."""
    columns = [*_RUN_COLUMNS, _ATTEMPTS, *(each for kind in _totals(rows) for each in _cost_columns(kind))]
    if any(row.run.fingerprint in tags for row in rows):
        columns.append(TextColumn("tags", lambda row: ", ".join(tags.get(row.run.fingerprint, [])), 80))
    if shown := [row for row in rows if _has_row(row) or row.run.fingerprint in tags]:
        yield table_of(shown, columns)
    yield from _reasons(rows, lab)[not shown :]
    completed = [row for row in rows if row.run.state == RunState.COMPLETED and not row.is_repeat]
    costs = ", ".join(f"{amounts} (× {ratio:.2f})" for amounts, ratio in _totals(completed).values())
    cost = f"{counted(len(completed), 'run')} completed, actual of planned cost: {costs}" if costs else ""
    if ending := [line for line in (cost, goodput) if line]:
        yield from ("", *ending)


def _experiments_table(experiments: Sequence[ExperimentSummary], tags: Mapping[str, list[str]]) -> Block:
    if not experiments:
        return "no experiments yet: jestlab init, or jestlab launch quickstart, which needs JAX"

    def count(state: RunState) -> TextColumn:
        def cell(row: ExperimentSummary) -> Text:
            number = row.counts.get(state, 0)
            return in_state(number, state if number else "-")

        return TextColumn(state.lower(), cell, right=True)

    columns = [
        TextColumn("experiment", lambda row: row.name),
        TextColumn("scale", lambda row: row.scale or "", 40),
        TextColumn("runs", lambda row: str(sum(row.counts.values())), right=True),
        *(count(state) for state in RunState if any(state in row.counts for row in experiments)),
        TextColumn("launched (UTC)", lambda row: f"{row.updated_at:%Y-%m-%d %H:%M}", 50),
    ]
    if any(row.name in tags for row in experiments):
        columns.append(TextColumn("tags", lambda row: ", ".join(tags.get(row.name, [])), 60))
    if any(row.imported_from is not None for row in experiments):
        columns.append(TextColumn("imported from", lambda row: one_line(row.imported_from or ""), 20))
    return table_of(experiments, columns)


def _experiments_data(
    experiments: Sequence[ExperimentSummary], tags: Mapping[str, list[str]]
) -> list[dict[str, Any]]:
    return [
        {
            "experiment": row.name,
            "question": row.question,
            "scale": row.scale,
            "launched_at": row.updated_at.isoformat(),
            "counts": dict(row.counts),
            "imported_from": row.imported_from,
            "tags": tags.get(row.name, []),
        }
        for row in experiments
    ]


# ---- watch and attach


@click.command(epilog=examples("watch quickstart", "watch quickstart --once --json"))
@click.argument("experiment", type=EXPERIMENT)
@click.option("--once", is_flag=True, help="Print one table; the default without a terminal.")
@lab_json_options("Print the table once, as JSON.")
def watch_command(experiment: str, *, once: bool, as_json: bool, lab: Lab) -> int:
    """Show the progress of EXPERIMENT's runs live.

    The table has the step, loss, speed, time left, and FLOPs of each run. Below it are failures, the reasons
    why runs wait, and the total of actual and planned costs, also in chip-hours and dollars if known.

    The speed is the average of the attempt, without start-up and compilation if the program reports them.

    Ends when all runs have ended, or when none is running and no launcher is alive; Ctrl-C ends only the
    display. Exit code: 1 if any run is FAILED, CANCELLED, PREEMPTED, or SKIPPED; otherwise 0.
    """
    watch = _watch(naming.existing_store(lab), experiment, lab)
    if once or as_json or not sys.stdout.isatty():
        rows = watch.update()
        show(as_json, [row.as_data() for row in rows], watch_lines(rows, lab))
    else:
        rows = _watch_live(watch, lab)
    failed = {RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED, RunState.PREEMPTED}
    return 1 if any(row.run.state in failed for row in rows) else 0


def _watch(store: Store, experiment: str, lab: Lab) -> Watch:
    """Return the watch of an experiment, which also looks after jobs while no launcher is alive."""

    def look_after() -> bool:
        from jestlab.platform.launch import launcher_job, session  # slow, and seldom needed

        session.look_after(lab, experiment)
        return launcher_job.find(lab, experiment) is not None

    return Watch(store, experiment, look_after)


def _watch_live(watch: Watch, lab: Lab) -> list[RunStatus]:
    """Redraw the table until the launch has ended; return the last rows."""
    from rich.live import Live

    rows: list[RunStatus] = []
    with Live(refresh_per_second=4, screen=False) as live:
        for update in watch.follow():
            error = [one_line(str(update))] if isinstance(update, UserError) else []
            rows = rows if isinstance(update, UserError) else update
            blocks = [*watch_lines(rows, lab, live.console.height), *error]
            live.update(Text.from_ansi(render(blocks, width(), has_styles()), no_wrap=True))
    return rows


def watch_lines(rows: Sequence[RunStatus], lab: Lab, height: int | None = None) -> list[Block]:
    """Return the table of runs, reasons, and totals. If not all runs fit the height, show active ones."""
    shown, reasons = [row for row in rows if _has_row(row)], _reasons(rows, lab)
    most = len(rows) if height is None else max(height - 5 - len(reasons), 1)
    if len(shown) > most:
        inactive = {RunState.PENDING, RunState.BLOCKED, RunState.COMPLETED, RunState.SKIPPED}
        shown = [row for row in shown if row.run.state not in inactive][:most]
    states = state_counts(Counter(str(row.run.state) for row in rows))
    spent = [f"; {amounts}, {ratio:.0%}" for amounts, ratio in _totals(rows, unknown=0.0).values()]
    return [table_of(shown, (*_RUN_COLUMNS, *_PROGRESS_COLUMNS)), *reasons, "", states + "".join(spent)]


@click.command(epilog=examples("attach quickstart", "attach quickstart --store postgresql://server/results"))
@click.argument("experiment", type=EXPERIMENT)
@lab_json_options("Print the runs as JSON at the end, and progress to standard error.")
def attach_command(experiment: str, *, as_json: bool, lab: Lab) -> int:
    """Follow the launch of EXPERIMENT, wherever it runs: progress, states, and its tables at the end.

    Ctrl-C ends the display; the launch continues. Exit code: 0 if all runs are completed, 130 if interrupted,
    otherwise 1.
    """
    from jestlab.platform import reports
    from jestlab.platform.spec.load import load_stored

    with closing(naming.existing_store(lab)) as store:
        try:
            rows = _attach(_watch(store, experiment, lab), experiment, sys.stderr if as_json else sys.stdout)
        except KeyboardInterrupt:
            command = f"jestlab attach {naming.shell_name(experiment)}{same_lab_options()}"
            say(f"the launch continues: {command} shows it again, jestlab cancel stops it", err=as_json)
            return 130
        counts = Counter(str(row.run.state) for row in rows if not row.is_repeat)
        is_complete = set(counts) <= {"COMPLETED"}
        if as_json:
            print_json([row.as_data() for row in rows])
        else:
            for each in reports.tables_of(lab, load_stored(experiment, store.spec(experiment))):
                say(["", *result_blocks(each, "in the reports"), ""])
            if is_complete and not (lab.reports / experiment).exists():  # no launcher has written them
                say(f"reports: jestlab report {naming.shell_name(experiment)}{same_lab_options()}", fit=False)
            if not is_complete:
                say(state_counts(counts))
    return 0 if is_complete else 1


def _attach(watch: Watch, experiment: str, stream: IO[str]) -> list[RunStatus]:
    """Display state changes and progress until the launch ends; return the last status of the runs.

    Runs that are completed at the start, and runs that aren't queued yet, aren't displayed.
    """
    listener = display(experiment, stream)
    rows: list[RunStatus] = []
    shown: dict[str, tuple[RunState, str | None]] = {}
    done_before: set[str] | None = None  # runs that were completed at the first update
    try:
        for update in watch.follow():
            if isinstance(update, UserError):
                continue
            rows, unique = update, [row for row in update if not row.is_repeat]
            if done_before is None:
                done_before = {row.run.fingerprint for row in unique if row.run.state == RunState.COMPLETED}
                listener.begin(len(unique) - len(done_before))
            for row in unique:
                run, is_live = row.run, row.lease is not None and row.lease.is_live
                is_queued = is_live and run.reason != STARTING
                if run.fingerprint in done_before or (run.state in WAITING and not is_queued):
                    continue
                if shown.get(run.fingerprint) != (run.state, run.reason):
                    shown[run.fingerprint] = (run.state, run.reason)
                    listener.state(run, run.state, run.reason)
            running = [row for row in unique if row.run.state == RunState.RUNNING]
            listener.progress({row.run.fingerprint: row.progress for row in running})
        if waiting := sum(not row.run.state.is_terminal for row in rows if not row.is_repeat):
            listener.note(f"no launcher is alive: {counted(waiting, 'run')} not launched")
    finally:
        listener.end()
    return rows
