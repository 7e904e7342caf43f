"""Studies that were registered: what they claimed before their first run, and what has changed since.

A claim that was found by looking at results is not tested by these results. So a study can be registered
before its first run: its claims, the error of their family, the number of seeds or when there are enough,
metrics, score, and the configs of its runs. What is not as it was registered is exploratory, and says why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..connection import frame

if TYPE_CHECKING:
    from sqlalchemy import Connection

_NEWEST = """
    SELECT content, digest, git_commit, author, created_at FROM v_registrations
    WHERE experiment = :experiment ORDER BY created_at DESC"""

_RUNS = "SELECT label, seed, fingerprint FROM v_runs WHERE experiment = :experiment"

_RULES = ("seeds", "metrics", "score")
"""What decides, besides the claims themselves, how those of a study are judged."""

_SHOWN = ("name", "digits", "scale")
"""How a metric is shown, which decides nothing."""

_JUDGES = ("claims", "intervals.py", "curves.py", "metrics.py", "frames.py", "efforts.py")
"""Code that judges claims, below this package."""


@dataclass(frozen=True)
class Registration:
    """A study as it was registered.

    Attributes:
        content: As of `content_of`.
        digest: SHA-256 of the content.
        commit: Of jestlab's checkout; empty if it was installed otherwise.
        author: Who registered it.
        created_at: When, UTC.
    """

    content: Mapping[str, Any]
    digest: str
    commit: str
    author: str
    created_at: datetime

    @classmethod
    def load(cls, connection: Connection, experiment: str) -> Registration | None:
        """Read the newest registration of an experiment; None if there is none.

        Args:
            connection: To the store, from `connect`.
            experiment: Its name.
        """
        from sqlalchemy import text

        row = connection.execute(text(_NEWEST), {"experiment": experiment}).mappings().first()
        if row is None:
            return None
        made = row["created_at"]
        return cls(
            content=json.loads(row["content"]),
            digest=str(row["digest"]),
            commit=str(row["git_commit"] or ""),
            author=str(row["author"]),
            created_at=datetime.fromisoformat(made) if isinstance(made, str) else made,
        )

    def __str__(self) -> str:
        at = f" at commit {self.commit[:8]}" if self.commit else ""
        when = f"{self.created_at:%Y-%m-%d %H:%M} UTC"
        return f"registered on {when} by {self.author}{at}, digest {self.digest[:12]}"


@dataclass(frozen=True)
class Changes:
    """What has changed since a study was registered.

    Attributes:
        rules: Study → what has changed of how all its claims are judged.
        claims: Study and statement → what has changed of a claim; that it was not registered.
        runs: Study and label of the runs whose config has changed.
        code: Whether the code that judges has.
    """

    rules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    claims: Mapping[tuple[str, str], str] = field(default_factory=dict)
    runs: frozenset[tuple[str, str]] = frozenset()
    code: bool = False

    def of(self, study: str, statement: str, labels: Sequence[str]) -> str:
        """Say why a claim is exploratory; empty if it is not."""
        changed = [label for label in labels if (study, label) in self.runs]
        told = [
            *self.rules.get(study, ()),
            self.claims.get((study, statement), ""),
            f"other config: {', '.join(changed)}" if changed else "",
        ]
        return "; ".join(filter(None, told))

    def lines(self) -> Iterator[str]:
        """Say what has changed, a line each."""
        for study, rules in self.rules.items():
            yield from (f"{study}: {rule}" for rule in rules)
        for (study, statement), change in self.claims.items():
            yield f"{study}: {statement}: {change}"
        for study, label in sorted(self.runs):
            yield f"{study}: other config: {label}"


def content_of(name: str, spec: Mapping[str, Any], runs: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Collect what is registered of a study.

    Args:
        name: Of the study.
        spec: As a store keeps it.
        runs: Study and label → fingerprint of the run with the first seed.
    """
    parts = {name: spec} | dict(spec.get("studies") or {})
    return {
        "family": spec.get("family"),
        "studies": {
            study: {"claims": its.get("claims") or [], **{key: its.get(key) for key in _RULES}}
            for study, its in parts.items()
        },
        "runs": {f"{study}/{label}": run for (study, label), run in sorted(runs.items())},
        "code": code_digest(),
    }


def content_now(connection: Connection, experiment: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Collect what could be registered of a study as it was launched last.

    Args:
        connection: To the store, from `connect`.
        experiment: Its name.
        spec: As the store keeps it.
    """
    rows = frame(connection, _RUNS, experiment=experiment).sort_values("seed")
    first = rows.drop_duplicates("label").set_index("label")["fingerprint"]
    is_union = bool(spec.get("studies"))
    places = {label: _place(label) if is_union else (experiment, label) for label in first.index}
    return content_of(experiment, spec, {places[label]: str(run) for label, run in first.items()})


def digest_of(content: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of what is registered, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def compare(registered: Mapping[str, Any], now: Mapping[str, Any]) -> Changes:
    """Compare a study with what was registered of it; both from `content_of`.

    A run that was not registered, or is not there any more, is no change: its claims are.
    """
    rules: dict[str, list[str]] = {}
    claims: dict[tuple[str, str], str] = {}
    for study, its in now["studies"].items():
        before = registered["studies"].get(study, {})
        keys = [(key, _deciding(key, before), _deciding(key, its)) for key in _RULES if before]
        keys.append(("family", registered["family"], now["family"]))
        told = [f"{key}: {_short(old)} → {_short(new)}" for key, old, new in keys if old != new]
        if told:
            rules[study] = told
        known = {claim["statement"]: claim for claim in before.get("claims", ())}
        for claim in its["claims"]:
            old = known.get(claim["statement"])
            change = "not registered" if old is None else _changed(old, claim)
            if change:
                claims[study, claim["statement"]] = change
    runs = frozenset(
        (study, label)
        for (study, label), run in ((_place(key), run) for key, run in now["runs"].items())
        if registered["runs"].get(f"{study}/{label}", run) != run
    )
    return Changes(rules, claims, runs, registered.get("code") != now.get("code"))


@cache
def code_digest() -> str:
    """Compute the SHA-256 of the code that judges claims."""
    package = Path(__file__).parents[1]
    files = sorted(
        file
        for name in _JUDGES
        for file in ([package / name] if name.endswith(".py") else (package / name).glob("*.py"))
    )
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()


def _place(key: str) -> tuple[str, str]:
    study, _, label = key.partition("/")
    return study, label


def _deciding(rule: str, its: Mapping[str, Any]) -> Any:
    """Return what a study's rule says, of its metrics without how they are shown."""
    if rule != "metrics":
        return its.get(rule)
    return {
        name: {key: value for key, value in metric.items() if key not in _SHOWN}
        for name, metric in (its.get(rule) or {}).items()
    }


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Say what has changed of a claim that decides it; its source and likely cause do not."""
    keys = [key for key in {**old, **new} if key not in ("statement", "source", "unless")]
    told = [
        f"{key} {_short(old.get(key))} → {_short(new.get(key))}"
        for key in keys
        if old.get(key) != new.get(key)
    ]
    return ", ".join(told)


def _short(value: Any) -> str:
    text = "nothing" if value in (None, [], {}) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
