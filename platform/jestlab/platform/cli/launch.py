"""`jestlab launch`, `retry`, and `cancel`.

The launcher is imported inside functions, because the import takes a second: `--help` stays fast.
"""

import functools
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from jestlab.platform.cli.completion import SPEC_RUN, SUBJECT
from jestlab.platform.cli.options import (
    FOLDER,
    decide_option,
    examples,
    lab_json_options,
    lab_options,
    model_flags,
    same_lab_options,
    spec_options,
)
from jestlab.platform.cli.output import say, show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.options import ControllerOptions, LaunchOptions, RetryOptions
from jestlab.platform.spec.fields import validated
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.words import counted

_SUBJECT = """\
SUBJECT is an experiment; one run of it, EXPERIMENT/RUN/SEED; or all seeds of a run, EXPERIMENT/RUN.
EXPERIMENT can be omitted if only one experiment has such a run."""

_no_reports = click.option("--no-reports", "reports", is_flag=True, flag_value=False, default=True,
                           help="Write no tables and figures.")  # fmt: skip
_lab_json = lab_json_options("Print one JSON object at the end, and progress to standard error.")


_DETACH = "--detach"


class _LaunchCommand(click.Command):
    """A command whose option `--detach` may have a value, but only after `=`: SPEC may follow it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"{_DETACH}=process" if word == _DETACH else word for word in args])


@click.command(
    cls=_LaunchCommand,
    epilog=examples(
        "launch quickstart",
        "launch quickstart --set seeds=1 --parallel 4",
        "launch my_study.yaml --on kubernetes --max-chip-hours 500",
        "launch my_study.yaml --root /data/lab --json > outcome.json",
        "launch my_study.yaml --rerun-changed",
        "launch my_study.yaml --decide",
        "launch my_study.yaml --detach",
        "launch my_study.yaml --on slurm --detach=slurm",
    ),
)
@spec_options
@model_flags(LaunchOptions, exclude=["runs", "reports", "ahead"])
@click.option("--render", type=FOLDER, metavar="DIR",
              help="Write the manifests to DIR, without credentials, and launch nothing.")  # fmt: skip
@click.argument("runs", type=SPEC_RUN, metavar="[RUN]...", nargs=-1)
@decide_option
@click.option(_DETACH, type=click.Choice(["process", "slurm", "dependencies"]),
              metavar="[=process|slurm|dependencies]",
              help="Return once started, and continue in a process of this machine (the default), in a "
                   "Slurm job, or without a launcher, as jobs with dependencies.")  # fmt: skip
@_no_reports
@_lab_json
def launch_command(
    *,
    study: StudySpec,
    lab: Lab,
    given: dict[str, Any],
    render: Path | None,
    detach: str | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Run SPEC (a name from `jestlab list`, or a .py or .yaml file) and write its tables and plots.

    Completed runs are skipped, interrupted runs resume from their last checkpoint, and runs of other launches
    are followed. Ctrl-C stops all runs, each at a checkpoint. Exit code: 0 if all runs are completed, 130 if
    interrupted, otherwise 1.
    """
    from jestlab.platform.cli.outcome import show_result, show_submitted
    from jestlab.platform.launch import launcher_job, session
    from jestlab.platform.launch.display import display

    options = validated(LaunchOptions, given | more | {"ahead": detach == "dependencies"})
    if detach and (as_json or render is not None):
        raise click.UsageError("--detach can't be combined with --json or --render")
    if detach == "process":
        return _launch_detached(lab, study)
    if render is not None:
        written = session.render(lab, study, options, render, display(study.name, sys.stderr))
        show(as_json, [str(path) for path in written], f"{counted(len(written), 'manifest')} in {render}")
        return 0
    listener = display(study.name, sys.stderr if as_json else None)
    hand_over = None
    if detach == "slurm":
        launcher_job.refuse_second(lab, study.name)
        hand_over = functools.partial(launcher_job.submit, lab, study, options)
    result = session.launch(lab, study, options, listener, hand_over=hand_over)
    is_detached = detach and result.outcome.exit_code  # otherwise all runs are completed
    return show_submitted(result) if is_detached else show_result(lab, result, as_json)


@click.command()
@click.argument("experiment")
@click.argument("options")
@click.argument("since", type=datetime.fromisoformat)
@lab_options
def continue_command(experiment: str, options: str, since: datetime, lab: Lab) -> int:
    """Continue a launch in a job: see `launch.launcher_job`."""
    from jestlab.platform.cli.outcome import show_result
    from jestlab.platform.launch import session
    from jestlab.platform.launch.display import display

    given = LaunchOptions.model_validate_json(options)
    result = session.continue_launch(lab, experiment, given, display(experiment, None), since)
    return show_result(lab, result, as_json=False)


@click.command(epilog=f"{_SUBJECT}\n\n{examples('retry quickstart', 'retry quickstart/joint/1 --retries 5')}")
@click.argument("name", type=SUBJECT, metavar="SUBJECT")
@model_flags(RetryOptions, exclude=["reports"])
@_no_reports
@_lab_json
def retry_command(name: str, *, lab: Lab, given: dict[str, Any], as_json: bool, reports: bool) -> int:
    """Retry the FAILED runs of SUBJECT, then the runs that were SKIPPED because of them.

    The study is used as it was last launched. No other run starts: cancelled runs stay cancelled. Exit code:
    the same as for `launch`.
    """
    from jestlab.platform.cli import naming
    from jestlab.platform.cli.outcome import show_result
    from jestlab.platform.launch import session
    from jestlab.platform.launch.display import display

    with closing(naming.existing_store(lab, writes=True)) as store:
        named = naming.find_runs(store, name)
    fingerprints = {row.fingerprint for row in named.runs}
    listener = display(named.experiment, sys.stderr if as_json else None)
    options = validated(RetryOptions, given | {"reports": reports})
    result = session.retry(lab, named.experiment, fingerprints, options, listener)
    return show_result(lab, result, as_json)


@click.command(epilog=f"{_SUBJECT}\n\n{examples('cancel quickstart', 'cancel quickstart/joint/1 --now')}")
@click.argument("name", type=SUBJECT, metavar="SUBJECT")
@click.option("--now", is_flag=True, help="Stop at once, without a last checkpoint.")
@lab_json_options("Print the cancelled runs as JSON.")
def cancel_command(name: str, *, lab: Lab, now: bool, as_json: bool) -> int:
    """Stop the runs of SUBJECT and end all of their processes.

    Runs stop at a checkpoint and stay CANCELLED until they are launched again; a running launch doesn't
    restart them. Exit code: 0 if all runs have stopped, 1 if any is still running.
    """
    from jestlab.platform.cli import naming
    from jestlab.platform.launch import controller, executors, launcher_job
    from jestlab.platform.launch.display import display
    from jestlab.platform.store import leases
    from jestlab.platform.store.records import ADOPTED, RunState
    from jestlab.platform.whoami import host_name, user_name

    store = naming.existing_store(lab, writes=True)
    named = naming.find_runs(store, name)
    rows = {
        row.fingerprint: row
        for row in named.runs
        if row.program != ADOPTED and row.state != RunState.COMPLETED  # imported runs can't be stopped here
    }
    leases.request_stop(store, list(rows), f"cancelled by {user_name()} on {host_name()}")
    outcome = controller.launch(
        lab, store, named.experiment, list(rows.values()), executors.finders(lab),
        options=ControllerOptions(at_once=now, launches=False),
        listener=display(named.experiment, sys.stderr if as_json else None, "to cancel"),
    )  # fmt: skip
    stopped = [row for run, row in rows.items() if outcome.states[run] == RunState.CANCELLED != row.state]
    if len(named.runs) == len(store.runs(named.experiment)):
        launcher_job.cancel(lab, named.experiment)
    text = [f"{counted(len(stopped), 'run')} cancelled" if stopped else "nothing to cancel"]
    shared = store.shared(named.experiment, [row.fingerprint for row in stopped])
    for other, count in sorted(shared.items()):
        text.append(f"{counted(count, 'run')} shared with {other}: CANCELLED until {other} is launched again")
    show(as_json, [{"run": row.name, "label": row.label, "seed": row.seed} for row in stopped], text)
    return 0 if all(state.is_terminal for state in outcome.states.values()) else 1


def _launch_detached(lab: Lab, study: StudySpec) -> int:
    """Launch in the background. Return 0 when the launch has started, or the exit code if it ended before."""
    from jestlab.platform.cli import naming
    from jestlab.platform.launch import detached
    from jestlab.platform.whoami import host_name

    words = click.get_current_context().find_root().obj
    launched = detached.start(lab, study.name, [word for word in words if not word.startswith(_DETACH)])
    if launched.exit_code is not None:  # the launch was refused, or had nothing to run
        output = launched.log.read_text(encoding="utf-8", errors="replace")
        say(output.rstrip("\n"), err=launched.exit_code != 0)
        return launched.exit_code
    name = f"{naming.shell_name(study.name)}{same_lab_options()}"
    running = f"{study.name} is running in the background (process {launched.pid} on {host_name()})"
    say((running, f"see:  jestlab attach {name}", f"stop: jestlab cancel {name}", f"log:  {launched.log}"),
        fit=False)  # fmt: skip
    return 0
