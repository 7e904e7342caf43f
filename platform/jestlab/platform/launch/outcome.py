"""Result of a launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jestlab.platform import reports
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.store.records import RunState


@dataclass(frozen=True)
class LaunchOutcome:
    """Final state of each run of a launch, and why the launch ended."""

    states: Mapping[str, RunState]  # fingerprint → state of each run of the plan
    reasons: Mapping[str, str]  # fingerprint → reason, for each run that did not complete
    interrupted: bool  # whether the user stopped the launch
    launched: int  # number of runs that were incomplete at the start
    stopped: str | None = None  # why jestlab stopped the launch early; None if it didn't
    over_budget: bool = False  # whether it stopped at the limit of chip-hours

    def merged_with(self, later: "LaunchOutcome") -> "LaunchOutcome":
        """Return this outcome combined with the outcome of a later round of the same launch."""
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
    """Plan, runs, outcome, and reports of a launch that has ended."""

    plan: Plan  # all runs of the study
    runs: Sequence[PlannedRun]  # runs of this launch: all runs of the study, or the retried ones
    outcome: LaunchOutcome
    made: reports.Made = field(default_factory=reports.Made)  # updated reports, if any were requested

    @property
    def exit_code(self) -> int:
        """0 if all runs completed and all reports were written, 130 if interrupted, else 1."""
        failed = self.made.failed or self.plan.waiting or self.outcome.stopped
        return self.outcome.exit_code or int(bool(failed))
