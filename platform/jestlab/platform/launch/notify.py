"""Notify the user of the end of a launch and of decided claims, through the services of `notify`.

Messages are sent by apprise in background threads with a time limit. A message that can't be sent is one
warning; it never delays or fails the launch. URLs of services contain secrets, so nothing here shows them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from pydantic import SecretStr

from jestlab.analysis import units
from jestlab.platform import dependencies
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.outcome import LaunchResult
from jestlab.platform.logs import one_line
from jestlab.platform.planning import deciding
from jestlab.platform.store.records import RunState
from jestlab.platform.words import counted

if TYPE_CHECKING:
    from jestlab.analysis.claims.judged import Judged

SECONDS = 10.0
"""Time limit for all messages of a launch, after its end."""

_MOST_LINES, _MOST_CHARACTERS = 5, 300  # of claims or failed runs in a message; of a reason

Kind = Literal["success", "failure", "warning", "info"]


class Sender:
    """Sends messages to services, each in a background thread.

    Args:
        services: URLs of apprise.
    """

    def __init__(self, services: Sequence[SecretStr]) -> None:
        self._services = services
        self._sending: list[tuple[int, Future[str]]] = []

    def send(self, kind: Kind, title: str, lines: Sequence[str]) -> None:
        """Start sending a message to all services."""
        for number, service in enumerate(self._services, 1):
            problem: Future[str] = Future()
            message = (service.get_secret_value(), kind, title, "\n".join(lines))
            Thread(target=_send, args=(*message, problem), daemon=True).start()
            self._sending.append((number, problem))

    def problems(self) -> list[str]:
        """Wait for all messages, up to the time limit; return one line for each service that failed."""
        deadline = time.monotonic() + SECONDS
        found: dict[str, None] = {}
        for number, sending in self._sending:
            try:
                problem = sending.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                problem = f"no answer within {SECONDS:g} s"
            if problem:
                found[f"notify: service {number} of {len(self._services)}: {problem}"] = None
        self._sending.clear()
        return [*found]


def _send(url: str, kind: Kind, title: str, text: str, problem: Future[str]) -> None:
    """Send a message, and set the problem; empty if it was sent. The problem never contains the URL."""
    try:
        from apprise import Apprise, NotifyType

        logging.getLogger("apprise").propagate = False  # its messages may contain secrets
        service = Apprise.instantiate(url)
        if service is None:
            problem.set_result("not a valid URL of apprise")
        elif service.notify(body=text, title=title, notify_type=NotifyType(kind)):
            problem.set_result("")
        else:
            problem.set_result("the message was not accepted")
    except Exception as error:  # of apprise or of its plugin, whose text may contain the URL
        problem.set_result(f"the message could not be sent ({type(error).__name__})")


class Notifications:
    """The messages of one launch. As a context, it also reports an unexpected end.

    Args:
        lab: The lab of the launch.
        name: Name of the study.
        listener: Receives warnings.

    Attributes:
        has_begun: Whether runs have been started. A launch that is refused before sends no message.
    """

    def __init__(self, lab: Lab, name: str, listener: Listener) -> None:
        self.has_begun = False
        self._lab, self._name, self._listener = lab, name, listener
        services = Settings.find().notify
        if services and (message := dependencies.missing("notify")):
            listener.note(f"notify: {message}")
            services = ()
        self._sender = Sender(services)
        self._is_on = bool(services)
        self._began = time.monotonic()
        self._announced: set[str] = set()

    def __enter__(self) -> Notifications:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self.has_begun:
            self._send("failure", "failed", [f"the launch ended with an error: {_first_line(str(error))}"])
        for problem in self._sender.problems():
            self._listener.note(problem)

    def decided(self, status: deciding.ClaimsStatus) -> None:
        """Send the claims that were decided since the last call, if the launch continues for other claims."""
        new = [each for each in status.judged if each.is_decided]
        new = [each for each in new if each.claim.statement not in self._announced]
        self._announced |= {each.claim.statement for each in new}
        if new and status.next.claims:
            title = f"{counted(len(new), 'claim')} decided"
            self._send("info", title, [*_verdicts(new), f"{status}; the launch continues"])

    def ended(self, result: LaunchResult) -> None:
        """Send the result of a launch, unless the user interrupted it or it had nothing to run."""
        if not self._is_on or result.outcome.interrupted or not result.outcome.launched:
            return
        try:
            self._send_result(result)
        except Exception as error:  # such as a store that can't be read; the launch itself has ended
            self._listener.note(f"notify: the result is not sent: {_first_line(str(error))}")

    def _send_result(self, result: LaunchResult) -> None:
        outcome, study = result.outcome, result.plan.study
        has_claims = any(each.claims for each in (study, *study.studies.values()))
        status = deciding.claims_status(self._lab.store_url, self._name) if has_claims else None
        counts = Counter(outcome.states[run.fingerprint] for run in result.runs)
        states = ", ".join(f"{count} {state.lower()}" for state, count in sorted(counts.items()))
        lines = [f"{states}, after {units.duration((time.monotonic() - self._began) / 3600)}"]
        if outcome.stopped:
            lines.append(f"stopped: {_first_line(outcome.stopped)}")
        lines += _few(
            f"{run.label}/{run.seed} failed: {_first_line(outcome.reasons.get(run.fingerprint, ''))}"
            for run in result.runs
            if outcome.states[run.fingerprint] == RunState.FAILED
        )
        lines += _verdicts(status.judged) if status is not None else []
        files = result.made.files.get(self._name, ())
        lines += [f"report: {path}" for path in files if path.name == "report.html"]
        if outcome.over_budget or (status is not None and status.next.left_out):
            self._send("warning", "budget reached", lines)
        elif result.exit_code:
            self._send("failure", "failed", lines)
        else:
            self._send("success", "finished", lines)

    def _send(self, kind: Kind, event: str, lines: Sequence[str]) -> None:
        self._sender.send(kind, f"jestlab: {self._name} {event}", lines)


def _verdicts(judged: Iterable[Judged]) -> list[str]:
    from jestlab.analysis.tables.claims import MARKS

    return _few(f"{MARKS[each.verdict]} {each.claim.statement}: {each.verdict_text}" for each in judged)


def _few(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and the number of the others."""
    every = [*lines]
    more = len(every) - _MOST_LINES
    return [*every[:_MOST_LINES], f"and {more} more"] if more > 0 else every


def _first_line(text: str) -> str:
    return one_line(text.strip().partition("\n")[0], _MOST_CHARACTERS)
