"""`jestlab launch`, `retry` and `cancel`: their options; `launching` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.options import (
    FOLDER,
    decide_option,
    examples,
    how_options,
    json_option,
    lab_options,
    spec_options,
    wide_option,
)
from jestlab.platform.lab.lab import Lab

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study

_SUBJECT = """\
SUBJECT is an experiment; one run of it, EXPERIMENT/RUN/SEED; or all seeds of a run, EXPERIMENT/RUN.
EXPERIMENT is left out where no other has such a run."""

_no_reports = click.option("--no-reports", is_flag=True, help="Write no tables and figures.")
_json = json_option("Print one JSON object at the end, and progress to standard error.")


@click.command(
    epilog=examples(
        "launch quickstart",
        "launch quickstart --set seeds=1 --parallel 4",
        "launch my_study.yaml --on kubernetes --max-chip-hours 500",
        "launch my_study.yaml --root /data/lab --json > outcome.json",
        "launch my_study.yaml --rerun-changed",
        "launch my_study.yaml --decide",
        "launch my_study.yaml --detach",
    )
)
@spec_options
@how_options
@click.option("--max-chip-hours", type=click.FloatRange(min=0), metavar="H",
              help="Launch nothing if the estimate exceeds H or is unknown, and start no run that would "
                   "exceed it with all that runs meanwhile; on this machine, H is in hours.")  # fmt: skip
@click.option("--render", type=FOLDER, metavar="DIR",
              help="Write the manifests to DIR, without credentials, and launch nothing.")  # fmt: skip
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--rerun-changed", is_flag=True,
              help="Run again what was made by other code or data than is there now, or other versions than "
                   "newer seeds; or the RUNs named of it; and what needs them.")  # fmt: skip
@click.option("--rerun-retracted", is_flag=True,
              help="Run again what is retracted, or the RUNs named, and what needs them.")  # fmt: skip
@click.option("--replace", is_flag=True,
              help="Replace the experiment of this name: another study, or another user's.")  # fmt: skip
@decide_option
@click.option("--detach", is_flag=True,
              help="Return once it has begun; it goes on without this terminal.")  # fmt: skip
@_no_reports
@wide_option
@_json
@lab_options
@click.pass_context
def launch_command(context: click.Context, /, *, study: Study, lab: Lab, **options: Any) -> None:
    """Run SPEC (a name from `jestlab list`, or a .py or .yaml file) and write its tables and plots.

    Completed runs are skipped, interrupted runs resume from their last checkpoint, and runs that are still
    running are found again. Ctrl-C stops all runs, each at a checkpoint. Exit code: 0 all runs are completed,
    1 not all are, 130 interrupted.
    """
    if options["runs"] and not (options["rerun_changed"] or options["rerun_retracted"]):
        raise click.UsageError("RUN: a launch takes the whole study; name runs with --rerun-changed alone")
    if options.pop("detach"):
        if options["as_json"] or options["render"] is not None:
            raise click.UsageError("--detach: leave out --json and --render")
        words = [word for word in context.find_root().obj if word != "--detach"]
        context.exit(_launching().detach(lab, study, words))
    context.exit(_launching().launch(lab, study, **options))


@click.command(epilog=f"{_SUBJECT}\n\n{examples('retry quickstart', 'retry quickstart/joint/1 --retries 5')}")
@click.argument("name", metavar="SUBJECT")
@how_options
@_no_reports
@wide_option
@_json
@lab_options
@click.pass_context
def retry_command(context: click.Context, /, name: str, *, lab: Lab, **options: Any) -> None:
    """Retry the FAILED runs of SUBJECT, then the runs that were SKIPPED because of them.

    The study is taken as it was last launched. Nothing else is started: cancelled runs stay cancelled. Exit
    code: as for `launch`.
    """
    context.exit(_launching().retry(lab, name, **options))


@click.command(epilog=f"{_SUBJECT}\n\n{examples('cancel quickstart', 'cancel quickstart/joint/1 --now')}")
@click.argument("name", metavar="SUBJECT")
@click.option("--now", is_flag=True, help="Stop at once, without a last checkpoint.")
@json_option("Print the cancelled runs as JSON.")
@lab_options
@click.pass_context
def cancel_command(context: click.Context, /, name: str, *, lab: Lab, **options: Any) -> None:
    """Stop the runs of SUBJECT, and make sure that none of their processes is left.

    Runs stop at a checkpoint and stay CANCELLED until they are launched again; a launch in progress does not
    restart them. Exit code: 0 all runs have stopped, 1 something is still running.
    """
    context.exit(_launching().cancel(lab, name, **options))


def _launching() -> Any:
    from jestlab.platform.cli import launching  # a second of imports, for which `--help` does not wait

    return launching
