"""What `jestlab launch`, `retry` and `cancel` do."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from jestlab.platform.cli import naming
from jestlab.platform.cli.options import same_lab_options
from jestlab.platform.cli.outcome import outcome_data, show_outcome
from jestlab.platform.cli.output import counted, print_json, say, show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import controller, detached, executors, session
from jestlab.platform.launch.display import Listener, Passing, display
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.session import How, Launched, Rerun
from jestlab.platform.spec.schema import Study
from jestlab.platform.store import leases
from jestlab.platform.store.records import ADOPTED, RunState
from jestlab.platform.store.store import Store
from jestlab.platform.whoami import host_name, user_name


def launch(
    lab: Lab,
    study: Study,
    how: dict[str, Any],
    *,
    max_chip_hours: float | None,
    render: Path | None,
    no_reports: bool,
    as_json: bool,
    runs: Sequence[str] = (),
    rerun_changed: bool = False,
    rerun_retracted: bool = False,
    replace: bool = False,
) -> int:
    """Launch a study, write its reports, and return the exit code; arguments as of `jestlab launch`."""
    if render is not None:
        written = session.render(lab, study, How(**how), render)
        show(as_json, [str(path) for path in written], f"{counted(len(written), 'manifest')} in {render}")
        return 0
    launched = session.launch(
        lab, study, How(**how), _listener(as_json, study.name), Rerun(rerun_changed, rerun_retracted, runs),
        max_chip_hours=max_chip_hours, replacing=replace, reported=not no_reports,
    )  # fmt: skip
    return _ended(lab, launched, as_json)


def detach(lab: Lab, study: Study, words: Sequence[str]) -> int:
    """Launch a study in a process of its own, and return 0 once it has begun, or its exit code.

    Args:
        lab: Where.
        study: What.
        words: The command that launches it: what follows `jestlab`.
    """
    begun = detached.start(lab, study.name, words)
    if begun.code is not None:  # refused, or nothing to run
        said = begun.log.read_text(encoding="utf-8", errors="replace")
        say(said.rstrip("\n"), err=begun.code != 0)
        return begun.code
    same, name = same_lab_options(), naming.pasted(study.name)
    say(f"{study.name} is launched by process {begun.pid} on {host_name()}, without this terminal")
    say(f"see:  jestlab attach {name}{same}", fit=False)
    say(f"stop: jestlab cancel {name}{same}", fit=False)
    say(f"log:  {begun.log}", fit=False)
    return 0


class _Beginning(Passing):
    """Says that a detached launch has begun."""

    def begin(self, count: int) -> None:
        """Say so, and pass it on."""
        detached.tell_begun()
        super().begin(count)


def retry(lab: Lab, name: str, how: dict[str, Any], *, no_reports: bool, as_json: bool) -> int:
    """Launch the runs that are named and failed, and those that waited for them; return the exit code."""
    with closing(Store.open(lab.store_url, create=False)) as store:
        named = naming.several(store, name)
    launched = session.retry(
        lab, named.experiment, {row.fingerprint for row in named.runs}, How(**how),
        _listener(as_json, named.experiment), reported=not no_reports,
    )  # fmt: skip
    return _ended(lab, launched, as_json)


def _ended(lab: Lab, launched: Launched, as_json: bool) -> int:
    """Print how a launch ended, and return its exit code."""
    plan, runs, outcome, made = launched.plan, launched.runs, launched.outcome, launched.made
    if as_json:
        print_json(outcome_data(plan, runs, outcome, made, launched.exit_code))
    else:
        show_outcome(lab, plan, runs, outcome, made)
    return launched.exit_code


def cancel(lab: Lab, name: str, *, now: bool, as_json: bool) -> int:
    """Stop the runs that are named, and return the exit code."""
    store = Store.open(lab.store_url, create=False)
    named = naming.several(store, name)
    experiment = named.experiment
    own = [row for row in named.runs if row.program != ADOPTED]  # others cannot be stopped from here
    wanted = {row.fingerprint: row for row in own if row.state != RunState.COMPLETED}
    leases.request_stop(store, list(wanted), f"cancelled by {user_name()} on {host_name()}")
    settings = Settings.find()
    outcome = controller.launch(
        lab,
        store,
        experiment,
        [naming.ListedRun.of(row) for row in wanted.values()],
        functools.cache(lambda name: executors.find(name, settings, lab)),
        options=Options(at_once=now, launches=False),
        listener=_listener(as_json, experiment, "to cancel"),
    )
    cancelled = [wanted[f] for f, state in outcome.states.items() if state == RunState.CANCELLED]
    stopped = [row for row in cancelled if row.state != RunState.CANCELLED]  # others were so before
    if as_json:
        print_json([{"run": row.name, "label": row.label, "seed": row.seed} for row in stopped])
    else:
        say(f"{counted(len(stopped), 'run')} cancelled" if stopped else "nothing to cancel")
        shared = store.shared(experiment, [row.fingerprint for row in stopped])
        for other, count in sorted(shared.items()):
            say(
                f"{count} of them also {'belongs' if count == 1 else 'belong'} to {other} and "
                f"{'stays' if count == 1 else 'stay'} CANCELLED there until {other} is launched again"
            )
    return 0 if all(state.is_terminal for state in outcome.states.values()) else 1


def _listener(as_json: bool, experiment: str, task: str = "to run") -> Listener:
    """Show progress on standard error where standard output is for a program."""
    return _Beginning(display(experiment, sys.stderr if as_json else sys.stdout, task))
