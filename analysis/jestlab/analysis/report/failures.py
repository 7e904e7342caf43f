"""What went wrong, run by run and attempt by attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rendering import Column, Table
from ..tables.show import MISSING

if TYPE_CHECKING:
    from .history import History

_BAD = ("FAILED", "PREEMPTED", "CANCELLED")
_STUCK = (*_BAD, "SKIPPED")


def failures(history: History) -> Table | None:
    """Every attempt that did not complete, and every run that ended without one.

    Args:
        history: Of the experiment.

    Returns:
        A table whose frame has the columns label, seed, fingerprint, state (of the run now), attempt, ended
        (how the attempt did), reason, at (UTC), exit_code, host, log (relative to the lab's root). None if
        nothing went wrong.
    """
    import pandas as pd

    now = dict(zip(history.runs["fingerprint"], history.runs["state"], strict=True))
    bad = history.attempts[history.attempts["state"].isin(_BAD)]
    frame = pd.DataFrame(
        {
            "label": bad["label"],
            "seed": bad["seed"],
            "fingerprint": bad["fingerprint"],
            "state": bad["fingerprint"].map(now),
            "attempt": bad["number"],
            "ended": bad["state"],
            "reason": bad["reason"],
            "at": bad["ended_at"].fillna(bad["heartbeat_at"]),
            "exit_code": bad["exit_code"],
            "host": bad["host"],
            "log": bad["log"],
        }
    )
    runs = history.runs
    untried = runs[runs["state"].isin(_STUCK) & ~runs["fingerprint"].isin(bad["fingerprint"])]
    if len(untried):
        frame = pd.concat(
            [frame, untried[["label", "seed", "fingerprint", "state", "reason"]]], ignore_index=True
        )
    if frame.empty:
        return None
    frame = frame.drop_duplicates(["fingerprint", "attempt"], ignore_index=True)
    frame["attempt"] = frame["attempt"].astype("Int64")
    frame["exit_code"] = frame["exit_code"].astype("Int64")
    frame.insert(0, "row", [f"{one}" for one in range(len(frame))])
    frame.insert(1, "apart", False)
    now_failed = frame.drop_duplicates("fingerprint")["state"].ne("COMPLETED")
    recovered = int((~now_failed).sum())
    notes = ["log: relative to the lab's root"]
    if recovered:
        notes.append(
            f"{recovered} {'run' if recovered == 1 else 'runs'} of these completed later all the same"
        )
    return Table(
        name=f"{history.experiment} failures",
        caption="Attempts that did not complete, and runs that ended without one.",
        frame=frame,
        columns=(
            Column("run", "run", lambda row: str(row["label"]), align="left"),
            Column("seed", "seed", lambda row: str(row["seed"])),
            Column("attempt", "attempt", lambda row: _text(row["attempt"])),
            Column("ended", "ended", lambda row: _text(row["ended"]), align="left"),
            Column("state", "run is now", lambda row: str(row["state"]), align="left"),
            Column("reason", "reason", lambda row: _first_line(row["reason"]), align="left"),
            Column("at", "when (UTC)", lambda row: _text(row["at"])[:19], align="left"),
            Column("exit_code", "exit code", lambda row: _text(row["exit_code"])),
            Column("host", "host", lambda row: _text(row["host"]), align="left"),
            Column("log", "log", lambda row: _text(row["log"]), align="left"),
        ),
        notes=tuple(notes),
    )


def _text(value: object) -> str:
    import pandas as pd

    return MISSING if pd.isna(value) or value == "" else str(value)  # type: ignore[call-overload]


def _first_line(reason: object, width: int = 160) -> str:
    lines = _text(reason).strip().splitlines()
    text = lines[0] if lines else MISSING
    return text if len(text) <= width else text[: width - 1] + "…"
