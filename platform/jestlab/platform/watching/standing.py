"""How the runs of an experiment stand: what they wait for, whether they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jestlab.platform.launch import liveness
from jestlab.platform.launch.pace import EXAMPLES, Pace
from jestlab.platform.launch.reconcile import RetryRules
from jestlab.platform.launch.waiting import SLOT, Waits, begin_in, place_in_line, waits_for
from jestlab.platform.launch.wakeup import Intervals
from jestlab.platform.logs import one_line
from jestlab.platform.programs import failures
from jestlab.platform.store import leases
from jestlab.platform.store.records import WAITING, Progress, RunRow, RunState, Spending, Standing
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store
from jestlab.platform.words import counted

_MOST_CAUSES = 5
_NAMED = 3


@dataclass(frozen=True)
class Stands:
    """One run as people read of it.

    Attributes:
        run: With the state and the reason that are true now: doubts that it runs, or what it waits for.
        standing: As the store has it.
        waits: What it waits for, with its place in line; None if it does not wait.
    """

    run: RunRow
    standing: Standing
    waits: Waits | None = None


def standing(
    store: Store, experiment: str, costs: Mapping[str, Spending], runs: Sequence[RunRow] | None = None
) -> list[Stands]:
    """Read how the runs of an experiment stand.

    Args:
        store: The store.
        experiment: Its name.
        costs: Of its runs, by fingerprint.
        runs: Of which of its runs, those that wait for a slot all or none; None for all of them.
    """
    runs = store.runs(experiment) if runs is None else runs
    fingerprints = [run.fingerprint for run in runs]
    standings, needs = leases.standings(store, fingerprints), store.needs(fingerprints)
    titles = {run.fingerprint: f"{run.label}/{run.seed}" for run in reversed(runs)}
    intervals = Intervals.from_environment()
    is_launched = liveness.any_launcher(leases.heartbeats(store), now())
    rules = RetryRules(0, intervals.backoff, intervals.max_backoff)
    found = []
    for run in runs:
        stands = standings[run.fingerprint]
        its_needs = needs.get(run.fingerprint, {}).items()
        titled = [(titles.get(needed, f"run {needed[:8]}"), state) for needed, state in its_needs]
        waits = waits_for(stands, titled, rules, now(), is_launched=is_launched)
        reason = liveness.doubts(stands.lease, now()) or waits.reason
        if stands.state == RunState.FAILED:
            reason = failures.reason_of(stands)
        shown = replace(run, state=waits.state, reason=None if reason is None else one_line(reason))
        found.append(Stands(shown, stands, waits if waits.state in WAITING else None))
    return _in_line(store, costs, found)


def _in_line(store: Store, costs: Mapping[str, Spending], found: Sequence[Stands]) -> list[Stands]:
    """Say of the runs that wait for a slot which place in line each has, and when it will begin."""
    line = [
        each.run.fingerprint for each in found if each.waits is not None and SLOT in (each.waits.reason or "")
    ]
    line = list(dict.fromkeys(line))
    if not line:
        return list(found)
    running = [each.run.fingerprint for each in found if each.run.state == RunState.RUNNING]
    ends = [_seconds_left(progress) for progress in store.progress(running, (EXAMPLES,)).values()]
    begins = begin_in(ends, [_planned_seconds(costs.get(fingerprint)) for fingerprint in line])
    places = {
        fingerprint: place_in_line(position, len(line), seconds)
        for position, (fingerprint, seconds) in enumerate(zip(line, begins, strict=True), 1)
    }
    return [
        replace(each, waits=each.waits._replace(place=places[each.run.fingerprint]))
        if each.waits is not None and each.run.fingerprint in places
        else each
        for each in found
    ]


def _seconds_left(progress: Progress) -> float | None:
    return Pace().add(progress).seconds_left


def _planned_seconds(cost: Spending | None) -> float | None:
    """Seconds that a run is planned to take on this machine; None where that is not known."""
    if cost is None or not cost.is_local or cost.planned_chip_hours is None:
        return None
    return cost.planned_chip_hours * 3600


class Waiting(Protocol):
    """A run, and what it waits for, if it does."""

    @property
    def run(self) -> RunRow:
        """The run."""

    @property
    def waits(self) -> Waits | None:
        """What it waits for."""


def why_they_wait(found: Iterable[Waiting]) -> Iterator[str]:
    """Write why runs wait: for each cause three lines at most, those with most runs first.

    The first says the reason and which runs, the second the place in line of the first of them, the third
    what would let it begin. Nothing is written of runs that wait for another run: their reason says all.
    """
    causes: dict[tuple[str, str], list[tuple[Waiting, Waits]]] = {}
    for each in found:
        if each.waits is None or each.waits.state == RunState.BLOCKED:
            continue
        if each.waits.place or each.waits.unblock:
            causes.setdefault((each.waits.reason or "", each.waits.unblock), []).append((each, each.waits))
    ordered = sorted(causes.items(), key=lambda cause: -len(cause[1]))
    for (reason, unblock), waiting in ordered[:_MOST_CAUSES]:
        runs = {each.run.fingerprint: f"{each.run.label}/{each.run.seed}" for each, _ in reversed(waiting)}
        names = [one_line(name) for name in reversed(runs.values())]
        more = f", … {len(names)} in all" if len(names) > _NAMED else ""
        yield f"{', '.join(names[:_NAMED])}{more}: {one_line(reason)}"
        if place := waiting[0][1].place:
            yield f"  {one_line(place)}"
        if unblock:
            yield f"  would let {'them' if len(names) > 1 else 'it'} begin: {one_line(unblock)}"
    if rest := sum(len(waiting) for _, waiting in ordered[_MOST_CAUSES:]):
        yield f"and {counted(rest, 'run')} more wait for {len(ordered) - _MOST_CAUSES} other reasons"


def run_data(run: RunRow) -> dict[str, Any]:
    """Describe a run and its state, for a program."""
    return {
        "run": run.name,
        "label": run.label,
        "seed": run.seed,
        "fingerprint": run.fingerprint,
        "state": run.state,
        "reason": run.reason,
    }


def as_data(waits: Waits | None) -> Mapping[str, str | None] | None:
    """Describe what a run waits for, for a program; None if it does not wait."""
    if waits is None:
        return None
    return {"reason": waits.reason, "place": waits.place or None, "unblock": waits.unblock or None}
