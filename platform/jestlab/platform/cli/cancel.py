"""`jestlab cancel`: stop runs, wherever they are, and whoever launched them."""

from __future__ import annotations

import functools
import getpass
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from jestlab.platform.cli import naming
from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.launching import listener_for
from jestlab.platform.lab import Lab
from jestlab.platform.store.states import RunState

_EPILOG = """\b
Example:
  jestlab cancel quickstart
  jestlab cancel quickstart joint --seed 1 --now
"""


@dataclass(frozen=True)
class _Target:
    """A run that is to stop; what it needs and executes does not matter any more."""

    fingerprint: str
    name: str
    label: str
    seed: int
    needs: Mapping[str, str] = field(default_factory=dict)
    program: str = ""


@click.command(epilog=_EPILOG)
@click.argument("experiment")
@click.argument("run", required=False)
@click.option("--seed", type=int, help="Replicate, where RUN has several.")
@click.option("--now", is_flag=True, help="Give runs no time to save.")
@click.option("--json", "as_json", is_flag=True, help="Print the cancelled runs as JSON.")
@lab_options
@click.pass_context
def command(
    context: click.Context,
    experiment: str,
    run: str | None,
    *,
    seed: int | None,
    now: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Stop the runs of EXPERIMENT, or one RUN of it, and see that none of their processes is left.

    They stop at a checkpoint and stay CANCELLED, also for the launch that started them, until they are
    launched again. Exit code 1 if something is still running in the end.
    """
    from jestlab.platform.launch import executors
    from jestlab.platform.launch.controller import Options, launch
    from jestlab.platform.settings import Settings
    from jestlab.platform.store import leases
    from jestlab.platform.store.store import Store

    store = Store.open(lab.store_url, create=False)
    rows = store.runs(experiment)
    if run is not None:
        rows = [naming.find(rows, run, seed)]
    elif seed is not None:
        raise click.UsageError("--seed says which replicate of a RUN: name one")
    wanted = {row.fingerprint: row for row in rows if row.state != RunState.COMPLETED}
    leases.request_stop(store, list(wanted), f"cancelled by {getpass.getuser()} on {socket.gethostname()}")
    settings = Settings.find()
    get = functools.cache(lambda name: executors.find(name, settings, lab))
    targets = [_Target(row.fingerprint, row.name, row.label, row.seed) for row in wanted.values()]
    outcome = launch(
        lab,
        store,
        experiment,
        targets,
        get,
        options=Options(at_once=now, launches=False),
        listener=listener_for(as_json),
    )
    stopped = [wanted[f] for f, state in outcome.states.items() if state == RunState.CANCELLED]
    if as_json:
        names = [{"run": row.name, "label": row.label, "seed": row.seed} for row in stopped]
        click.echo(json.dumps(names, ensure_ascii=False))
    else:
        click.echo(f"{len(stopped)} runs cancelled" if stopped else "nothing to cancel")
        shared = store.shared(experiment, [row.fingerprint for row in stopped])
        for other, count in sorted(shared.items()):
            what = "they stay CANCELLED there until it is launched"
            click.echo(f"{count} of them belong to {other}, too: {what}")
    done = (RunState.CANCELLED, RunState.COMPLETED)
    context.exit(0 if all(state in done for state in outcome.states.values()) else 1)
