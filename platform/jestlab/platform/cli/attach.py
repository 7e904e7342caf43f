"""`jestlab attach`: show a launch that goes on elsewhere, as `launch` itself would, until it is over."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import closing
from typing import IO, TYPE_CHECKING

import click

from jestlab.platform.cli.options import examples, json_option, lab_options, same_lab_options, wide_option
from jestlab.platform.cli.output import counted, print_json, say
from jestlab.platform.lab.lab import Lab

if TYPE_CHECKING:  # a second of imports, for which `--help` does not wait
    from jestlab.platform.store.store import Store

_LOOKS = 4  # without anything that runs or may start, until it is believed
_SECONDS = 1.0


@click.command(epilog=examples("attach quickstart", "attach quickstart --store postgresql://server/results"))
@click.argument("experiment")
@wide_option
@json_option("Print the runs as JSON at the end, and progress to standard error.")
@lab_options
@click.pass_context
def attach_command(context: click.Context, experiment: str, *, as_json: bool, lab: Lab) -> None:
    """Show how EXPERIMENT's launch goes on, wherever it runs: progress, states, and in the end its tables.

    Ctrl-C ends the display and leaves the launch alone. Exit code: 0 all runs are completed, 1 not all are,
    130 interrupted.
    """
    from jestlab.platform import reports
    from jestlab.platform.cli import result_tables
    from jestlab.platform.cli.naming import existing_store, pasted
    from jestlab.platform.spec.load import load_stored
    from jestlab.platform.store.records import RunState
    from jestlab.platform.watching.standing import run_data

    with closing(existing_store(lab)) as store:
        try:
            states = _follow(store, experiment, sys.stderr if as_json else sys.stdout)
        except KeyboardInterrupt:
            command = f"jestlab attach {pasted(experiment)}{same_lab_options()}"
            say(f"the launch goes on: {command} shows it again, jestlab cancel stops it", err=as_json)
            context.exit(130)
        if as_json:
            print_json([run_data(row) for row in store.runs(experiment)])
            context.exit(1 if any(state != RunState.COMPLETED for state in states) else 0)
        for table in reports.tables_of(lab, load_stored(experiment, store.spec(experiment))):
            say(["", *result_tables.blocks(table), ""])
    left = [state for state in states if state != RunState.COMPLETED]
    if left:
        say(", ".join(f"{count} {state}" for state, count in Counter(states).items()))
    context.exit(1 if left else 0)


def _follow(store: Store, experiment: str, stream: IO[str]) -> list[str]:
    """Show what changes until nothing runs and nothing may start; return the states of the runs."""
    from jestlab.platform.cli.naming import ListedRun
    from jestlab.platform.errors import StoreUnreachable
    from jestlab.platform.launch import liveness
    from jestlab.platform.launch.display import display
    from jestlab.platform.launch.pace import EXAMPLES
    from jestlab.platform.store import leases
    from jestlab.platform.store.records import RunState
    from jestlab.platform.store.rows import now

    runs = {row.fingerprint: row for row in store.runs(experiment)}
    shown: dict[str, tuple[RunState, str | None]] = {}
    listener, quiet = display(experiment, stream), 0
    states = store.states(runs)
    listener.begin(sum(state != RunState.COMPLETED for state in states.values()))
    before = {run for run, state in states.items() if state == RunState.COMPLETED}
    try:
        while True:
            try:
                states, reasons = store.states(runs), store.reasons(runs)
                running = [run for run, state in states.items() if state == RunState.RUNNING]
                far = store.progress(running, ("loss", EXAMPLES)) if running else {}
                launched = liveness.any_launcher(leases.heartbeats(store), now())
            except StoreUnreachable:
                time.sleep(_SECONDS)
                continue
            for fingerprint, row in runs.items():
                new = (states[fingerprint], reasons.get(fingerprint))
                is_news = shown.get(fingerprint) != new and fingerprint not in before
                if is_news and (new[0] not in (RunState.PENDING, RunState.BLOCKED) or new[1] is not None):
                    listener.state(ListedRun.of(row), *new)
                shown[fingerprint] = new
            if far:
                listener.progress(far)
            over = all(state.is_terminal for state in states.values())
            quiet = quiet + 1 if over or (not running and not launched) else 0
            if all(state == RunState.COMPLETED for state in states.values()):
                break
            if quiet >= _LOOKS:
                waiting = sum(not state.is_terminal for state in states.values())
                if waiting:
                    listener.note(f"no launcher is alive: {counted(waiting, 'run')} to be launched")
                break
            time.sleep(_SECONDS)
    finally:
        listener.end()
    return [str(state) for state in states.values()]
