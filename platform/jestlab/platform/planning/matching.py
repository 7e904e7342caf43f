"""Solve for how long a run trains that spends the FLOPs or the seconds of another."""

from __future__ import annotations

from dataclasses import dataclass

from jestlab.analysis import units
from jestlab.analysis.costs import Scope, matching_examples
from jestlab.platform.errors import UserError
from jestlab.platform.planning.timings import Timings, length_of, plain
from jestlab.platform.programs import Config, Price, Program


def examples_within(price: Price | None, budget: Price | None, scope: Scope) -> int:
    """Solve for the examples seen, in whole steps, that cost as nearly as possible what another run costs.

    Args:
        price: Of the run, however long it is for now: what an example costs does not depend on that.
        budget: Of the other run, whole.
        scope: What counts as FLOPs.

    Raises:
        UserError: Either cost is unknown or zero, or not even one step fits.
    """
    if price is None or price.step is None:
        raise UserError("the cost of one example of this run is unknown")
    if budget is None or not budget.cost.total(scope):
        raise UserError("the cost of that run is unknown or zero: name a run of train")
    try:
        seen = matching_examples(1.0, budget.cost, price.step.cost(), scope)
    except ValueError as error:
        raise UserError(str(error)) from None
    steps = round(seen / price.step.batch_size)
    if steps < 1:
        raise UserError(f"the budget of {units.flops(budget.cost.total(scope))} is less than one step costs")
    return steps * price.step.batch_size


@dataclass(frozen=True, slots=True)
class Timed:
    """A run that is compared by time: its program, label, resolved config, and what it costs."""

    program: Program
    label: str
    config: Config
    price: Price | None


def examples_in_time(run: Timed, rival: Timed, timings: Timings) -> int | None:
    """Solve for the examples seen, in whole steps, that take as nearly as possible as long as another run.

    Args:
        run: The run whose length is solved for; that in its config does not matter.
        rival: The run that it shall train as long as.
        timings: Of runs of these configs.

    Returns:
        The examples seen; those of the last launch, if nothing has changed since. None where nobody has
        measured both on the same kind of device.

    Raises:
        UserError: The runs are not of a program whose seconds grow with the examples seen, or not even one
            step fits.
    """
    if run.price is None or run.price.step is None or rival.program is not run.program:
        raise UserError(f"both must be runs of train: {run.label} and {rival.label} are not")
    if (
        seen := timings.solved_before(run.program, run.label, run.config, rival.label, rival.config)
    ) is not None:
        return seen
    if (paces := timings.pace(run.program, run.config, rival.config)) is None:
        return None
    own, its = paces
    examples = length_of(rival.program, plain(rival.config)) * its / own
    steps = round(examples / run.price.step.batch_size)
    if steps < 1:
        raise UserError(f"{rival.label} takes less time than one step of {run.label}")
    return steps * run.price.step.batch_size
