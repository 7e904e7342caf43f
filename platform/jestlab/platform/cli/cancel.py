"""`jestlab cancel`: stop runs, wherever they are, and whoever launched them."""

from __future__ import annotations

import functools
import getpass
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from jestlab.platform.cli import naming
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.outcome import listener_for
from jestlab.platform.cli.output import counted, print_json
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import controller, executors
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store


@dataclass(frozen=True)
class _Target:
    """A run to stop; what it needs and executes does not matter any more."""

    fingerprint: str
    name: str
    label: str
    seed: int
    needs: Mapping[str, str] = field(default_factory=dict)
    program: str = ""


@click.command(epilog=examples("cancel quickstart", "cancel quickstart joint --seed 1 --now"))
@click.argument("experiment")
@click.argument("run", required=False)
@click.option("--seed", type=int, help="Replicate, where RUN has several.")
@click.option("--now", is_flag=True, help="Stop at once, without a last checkpoint.")
@json_option("Print the cancelled runs as JSON.")
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
    """Stop the runs of EXPERIMENT, or one RUN of it, and make sure that none of their processes is left.

    Runs stop at a checkpoint and stay CANCELLED until they are launched again; a launch in progress does not
    restart them. Exit code: 0 all runs have stopped, 1 something is still running.
    """
    store = Store.open(lab.store_url, create=False)
    rows = store.runs(experiment)
    if run is not None:
        rows = [naming.find(rows, run, seed)]
    elif seed is not None:
        raise click.UsageError("--seed: expected the name of a RUN before it")
    wanted = {row.fingerprint: row for row in rows if row.state != RunState.COMPLETED}
    leases.request_stop(store, list(wanted), f"cancelled by {getpass.getuser()} on {socket.gethostname()}")
    settings = Settings.find()
    outcome = controller.launch(
        lab,
        store,
        experiment,
        [_Target(row.fingerprint, row.name, row.label, row.seed) for row in wanted.values()],
        functools.cache(lambda name: executors.find(name, settings, lab)),
        options=controller.Options(at_once=now, launches=False),
        listener=listener_for(as_json),
    )
    stopped = [wanted[f] for f, state in outcome.states.items() if state == RunState.CANCELLED]
    if as_json:
        print_json([{"run": row.name, "label": row.label, "seed": row.seed} for row in stopped])
    else:
        click.echo(f"{counted(len(stopped), 'run')} cancelled" if stopped else "nothing to cancel")
        shared = store.shared(experiment, [row.fingerprint for row in stopped])
        for other, count in sorted(shared.items()):
            click.echo(
                f"{count} of them also {'belongs' if count == 1 else 'belong'} to {other} and "
                f"{'stays' if count == 1 else 'stay'} CANCELLED there until {other} is launched again"
            )
    over = (RunState.CANCELLED, RunState.COMPLETED)
    context.exit(0 if all(state in over for state in outcome.states.values()) else 1)
