"""`jestlab attach`: follow a running launch, with the display of `launch`, until it ends."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import closing
from typing import IO, TYPE_CHECKING

import click

from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.options import examples, json_option, lab_options, same_lab_options, wide_option
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.words import counted

if TYPE_CHECKING:  # a second of imports, which `--help` doesn't need
    from jestlab.platform.launch.status import RunStatus
    from jestlab.platform.store.store import Store

_QUIET = 4  # updates without a running run and without a launcher, after which the launch counts as ended
_SECONDS = 1.0


@click.command(epilog=examples("attach quickstart", "attach quickstart --store postgresql://server/results"))
@click.argument("experiment", type=EXPERIMENT)
@wide_option
@json_option("Print the runs as JSON at the end, and progress to standard error.")
@lab_options
@click.pass_context
def attach_command(context: click.Context, experiment: str, *, as_json: bool, lab: Lab) -> None:
    """Follow the launch of EXPERIMENT, wherever it runs: progress, states, and its tables at the end.

    Ctrl-C ends the display; the launch continues. Exit code: 0 all runs are completed, 1 not all are, 130
    interrupted.
    """
    from jestlab.platform import reports
    from jestlab.platform.cli.naming import existing_store, pasted
    from jestlab.platform.render import result_blocks
    from jestlab.platform.spec.load import load_stored

    with closing(existing_store(lab)) as store:
        try:
            rows = _follow(store, experiment, sys.stderr if as_json else sys.stdout)
        except KeyboardInterrupt:
            command = f"jestlab attach {pasted(experiment)}{same_lab_options()}"
            say(f"the launch continues: {command} shows it again, jestlab cancel stops it", err=as_json)
            context.exit(130)
        counts = Counter(str(row.run.state) for row in rows if not row.repeats)
        is_complete = set(counts) <= {"COMPLETED"}
        if as_json:
            print_json([row.as_data() for row in rows])
        else:
            for table in reports.tables_of(lab, load_stored(experiment, store.spec(experiment))):
                say(["", *result_blocks(table), ""])
            if not is_complete:
                say(", ".join(f"{count} {state}" for state, count in counts.items()))
    context.exit(0 if is_complete else 1)


def _follow(store: Store, experiment: str, stream: IO[str]) -> list[RunStatus]:
    """Show all changes until the launch has ended; return the last status of the runs."""
    from jestlab.platform.errors import StoreUnreachable
    from jestlab.platform.launch.display import EXAMPLES, display
    from jestlab.platform.launch.liveness import any_launcher
    from jestlab.platform.launch.status import STARTING, Watch
    from jestlab.platform.store import leases
    from jestlab.platform.store.records import WAITING, RunState
    from jestlab.platform.store.rows import now

    watch, listener, quiet = Watch(store, experiment), display(experiment, stream), 0
    rows = watch.update()
    completed = {row.run.fingerprint for row in rows if row.run.state == RunState.COMPLETED}
    shown: dict[str, tuple[RunState, str | None]] = {}
    listener.begin(len({row.run.fingerprint for row in rows} - completed))
    try:
        while True:
            for row in rows:
                run, is_live = row.run, row.lease is not None and row.lease.is_live
                is_queued = is_live and run.reason != STARTING
                if run.fingerprint in completed or row.repeats or (run.state in WAITING and not is_queued):
                    continue
                if shown.get(run.fingerprint) != (run.state, run.reason):
                    shown[run.fingerprint] = (run.state, run.reason)
                    listener.state(run, run.state, run.reason)
            running = [row.run.fingerprint for row in rows if row.run.state == RunState.RUNNING]
            try:
                if running:
                    listener.progress(store.progress(running, ("loss", EXAMPLES)))
                is_launched = any_launcher(leases.heartbeats(store), now())
                is_over = all(row.run.state.is_terminal for row in rows) or not (running or is_launched)
                quiet = quiet + 1 if is_over else 0
                if all(row.run.state == RunState.COMPLETED for row in rows):
                    break
                if quiet >= _QUIET:
                    if waiting := sum(not row.run.state.is_terminal for row in rows if not row.repeats):
                        listener.note(f"no launcher is alive: {counted(waiting, 'run')} not launched")
                    break
                time.sleep(_SECONDS)
                rows = watch.update()
            except StoreUnreachable:
                time.sleep(_SECONDS)
    finally:
        listener.end()
    return list(rows)
