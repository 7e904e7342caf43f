"""Result of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jestlab.platform import reports
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.store.records import RunState


@dataclass(frozen=True)
class LaunchOutcome:
    """How a launch ended."""

    states: Mapping[str, RunState]  # fingerprint → state of each run of the plan
    reasons: Mapping[str, str]  # fingerprint → reason of each run that did not complete
    interrupted: bool  # whether the user stopped it
    launched: int  # number of runs that were not completed before
    stopped: str | None = None  # why the launch stopped itself; None if it didn't

    def then(self, later: LaunchOutcome) -> LaunchOutcome:
        """Return this outcome combined with that of a later round of the same launch."""
        states, reasons = {**self.states, **later.states}, {**self.reasons, **later.reasons}
        return replace(later, states=states, reasons=reasons, launched=self.launched + later.launched)

    @property
    def exit_code(self) -> int:
        """0 if all runs completed, 130 if interrupted, else 1."""
        if self.interrupted:
            return 130
        return 0 if all(state == RunState.COMPLETED for state in self.states.values()) else 1


@dataclass(frozen=True)
class LaunchResult:
    """A launch that has ended."""

    plan: Plan  # all runs of the study
    runs: Sequence[PlannedRun]  # runs that the launch had to complete
    outcome: LaunchOutcome
    made: reports.Made = field(default_factory=reports.Made)  # reports that are up to date

    @property
    def exit_code(self) -> int:
        """0 if everything is completed and reported, 130 if interrupted, else 1."""
        failed = self.made.failed or self.plan.waiting or self.outcome.stopped
        return self.outcome.exit_code or int(bool(failed))
