"""Notify the user of the end of a launch and of decided claims, through the services of `notify`.

Messages are sent by apprise in background threads with a time limit. A message that can't be sent is one
warning; it never delays or fails the launch. URLs of services contain secrets, so nothing here shows them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from threading import Thread
from typing import TYPE_CHECKING

from jestlab.analysis import units
from jestlab.platform import dependencies
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.outcome import LaunchResult
from jestlab.platform.logs import one_line
from jestlab.platform.planning import deciding
from jestlab.platform.programs.failures import headline
from jestlab.platform.store.records import RunState
from jestlab.platform.words import counted

if TYPE_CHECKING:
    from jestlab.analysis.claims.judged import Judged

SECONDS = 10.0
"""Time limit for all messages of a launch, after its end."""

_MOST_LINES, _MOST_CHARACTERS = 5, 300  # of claims or failed runs in a message; of a line


class Notifications:
    """Context in which the messages of one launch are sent, also if it ends with an error.

    Attributes:
        has_begun: Whether runs have been started. A launch that is refused before sends no message.
    """

    def __init__(self, lab: Lab, name: str, listener: Listener) -> None:
        """Prepare for a launch of the study `name`; `listener` receives warnings."""
        self.has_begun = False
        self._lab, self._name, self._listener = lab, name, listener
        self._services = Settings.find().notify
        if self._services and (message := dependencies.missing("notify")):
            listener.note(f"notify: {message}")
            self._services = ()
        self._sending: list[tuple[int, Thread]] = []
        self._problems: dict[int, str] = {}  # by number of the service
        self._began = time.monotonic()
        self._announced: set[str] = set()  # statements of claims that were decided before

    def __enter__(self) -> Notifications:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Wait for all messages, up to the time limit, and report each service that failed."""
        if isinstance(error, Exception) and self.has_begun:
            self._send("failure", "failed", [f"the launch ended with an error: {error}"])
        deadline = time.monotonic() + SECONDS
        for number, thread in self._sending:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._problems[number] = f"no answer within {SECONDS:g} s"
        for number, problem in sorted(self._problems.items()):
            self._listener.note(f"notify: service {number} of {len(self._services)}: {problem}")

    def decided(self, status: deciding.ClaimsStatus) -> None:
        """Send the claims that were decided since the last call, if the launch continues for other claims."""
        new = self._skip(status)
        if new and status.next.claims:
            lines = [*_verdicts(new), f"{status}; the launch continues"]
            self._send("info", f"{counted(len(new), 'claim')} decided", lines)

    def skip_decided(self) -> None:
        """Send no message about claims that an earlier launch decided."""
        if self._services:  # otherwise, don't read the results
            self._skip(deciding.claims_status(self._lab.store_url, self._name))

    def _skip(self, status: deciding.ClaimsStatus) -> list[Judged]:
        """Return the claims that have been decided since the last call."""
        decided = {each.claim.statement: each for each in status.judged if each.is_decided}
        new = [each for statement, each in decided.items() if statement not in self._announced]
        self._announced |= decided.keys()
        return new

    def ended(self, result: LaunchResult) -> None:
        """Send the result of a launch, unless the user interrupted it or it had nothing to run."""
        outcome, study = result.outcome, result.plan.study
        if not self._services or outcome.interrupted or not outcome.launched:
            return
        counts = Counter(outcome.states[run.fingerprint] for run in result.runs)
        states = ", ".join(f"{count} {state.lower()}" for state, count in sorted(counts.items()))
        lines = [f"{states}, after {units.duration((time.monotonic() - self._began) / 3600)}"]
        lines += [f"stopped: {outcome.stopped}"] if outcome.stopped else []
        failed = (run for run in result.runs if outcome.states[run.fingerprint] == RunState.FAILED)
        lines += _first(
            f"{run.label}/{run.seed} failed: {headline(outcome.reasons.get(run.fingerprint) or '')}"
            for run in failed
        )
        over_budget = outcome.over_budget
        if any(each.claims for each in (study, *study.studies.values())):
            try:
                status = deciding.claims_status(self._lab.store_url, self._name)
                lines += _verdicts(status.judged)
                over_budget |= bool(status.next.left_out)
            except Exception as error:  # such as a store that can't be read; the launch itself has ended
                lines.append(f"the claims can't be read: {error}")
        files = result.made.files.get(self._name, ())
        lines += [f"report: {path}" for path in files if path.name == "report.html"]
        kind, event = ("failure", "failed") if result.exit_code else ("success", "finished")
        self._send(*(("warning", "budget reached") if over_budget else (kind, event)), lines)

    def _send(self, kind: str, event: str, lines: Iterable[str]) -> None:
        """Start sending a message to all services; `kind` is success, failure, warning, or info."""
        text = "\n".join(one_line(line.strip().partition("\n")[0], _MOST_CHARACTERS) for line in lines)
        for number, service in enumerate(self._services, 1):
            arguments = (number, service.get_secret_value(), kind, f"jestlab: {self._name} {event}", text)
            thread = Thread(target=self._deliver, args=arguments, daemon=True)
            thread.start()
            self._sending.append((number, thread))

    def _deliver(self, number: int, url: str, kind: str, title: str, text: str) -> None:
        try:
            from apprise import Apprise, NotifyType

            logging.getLogger("apprise").propagate = False  # its messages may contain secrets
            service = Apprise.instantiate(url)
            if service is None:
                self._problems[number] = "not a valid URL of apprise"
            elif not service.notify(body=text, title=title, notify_type=NotifyType(kind)):
                self._problems[number] = "the message was not accepted"
        except Exception as error:  # of apprise or of its plugin, whose text may contain the URL
            self._problems[number] = f"the message could not be sent ({type(error).__name__})"


def _verdicts(judged: Iterable[Judged]) -> list[str]:
    from jestlab.analysis.tables.claims import MARKS

    return _first(f"{MARKS[each.verdict]} {each.claim.statement}: {each.verdict_text}" for each in judged)


def _first(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and the number of the others."""
    every = [*lines]
    more = len(every) - _MOST_LINES
    return [*every[:_MOST_LINES], f"and {more} more"] if more > 0 else every
