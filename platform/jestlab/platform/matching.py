"""How long a run is to train so that it costs what another run costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from jestlab.analysis import costs, units
from jestlab.platform.errors import UserError
from jestlab.platform.programs import Price

Section = TypeVar("Section", bound=BaseModel)


def examples(price: Price | None, budget: Price | None, scope: costs.Scope) -> int:
    """Examples seen, in whole steps, that cost as near as can be what another run costs.

    Args:
        price: Of the run, however long it is for now: what an example costs does not depend on that.
        budget: Of the other run, whole.
        scope: What counts as FLOPs.

    Raises:
        UserError: Either's cost is not known or nothing, or not even one step fits.
    """
    if price is None or price.step is None:
        raise UserError("what an example costs this run is not known")
    if budget is None or not budget.cost.total(scope):
        raise UserError("what that run costs is not known, or nothing: name a run of train")
    try:
        seen = costs.matching_examples(1.0, budget.cost, price.step.cost(), scope)
    except ValueError as error:
        raise UserError(str(error)) from None
    steps = round(seen / price.step.batch_size)
    if steps < 1:
        raise UserError(f"the budget of {units.flops(budget.cost.total(scope))} is less than one step costs")
    return steps * price.step.batch_size


def with_value(section: Section, path: Sequence[str], value: int) -> Section:
    """A config with another value at a path."""
    head, *rest = path
    if rest:
        return section.model_copy(update={head: with_value(getattr(section, head), rest, value)})
    return section.model_copy(update={head: value})
