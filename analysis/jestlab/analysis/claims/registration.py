"""Registered studies: their content before the first run, and the changes since.

Results can't test a claim that was chosen by looking at them. So a study can be registered before its first
run, with its claims, error rate, seeds, metrics, score, and the configs of its runs. A claim that is affected
by a later change is exploratory.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .family import Family

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ..results import Snapshot

_NEWEST = """
    SELECT content, digest, git_commit, author, created_at FROM v_registrations
    WHERE experiment = :experiment ORDER BY created_at DESC"""

_RUNS = "SELECT label, seed, fingerprint FROM v_runs WHERE experiment = :experiment"

_JUDGING = ("configs", "costs", "curves", "efforts", "frames", "intervals", "metrics", "names", "results")
"""Modules of `analysis` that decide verdicts, in addition to those of this package."""

_BLANK = (
    r'^ *("""(.|\n)*?"""|"[^\n]*"|\'[^\n]*\')?\n'  # docstrings and blank lines in the output of `ast.unparse`
)
_RULES = ("seeds", "metrics", "score")  # keys of a study that affect all its verdicts
_DISPLAY = ("name", "digits", "scale")  # keys of a metric that affect no verdict
_TEXTS = ("statement", "source", "unless")  # keys of a claim that affect no verdict


@dataclass(frozen=True)
class Registration:
    """A registered study.

    Attributes:
        content: The registered content, from `content_of`.
        git_commit: Commit of jestlab's checkout; None if it was installed as a package.
        created_at: Time of the registration, UTC.
    """

    content: Mapping[str, Any]
    digest: str
    git_commit: str | None
    author: str
    created_at: datetime

    @classmethod
    def load(cls, connection: Connection, experiment: str) -> Registration | None:
        """Read the latest registration of an experiment; None for an unregistered one."""
        from sqlalchemy import text

        row = connection.execute(text(_NEWEST), {"experiment": experiment}).mappings().first()
        if row is None:
            return None
        created = datetime.fromisoformat(str(row["created_at"]))  # SQLite has no type for times
        return cls(**{**row, "content": json.loads(row["content"]), "created_at": created})

    @property
    def is_by_other_code(self) -> bool:
        """Whether the code that judges claims has changed since the registration."""
        return self.content.get("code") != code_digest()

    def __str__(self) -> str:
        commit = f" at commit {self.git_commit[:8]}" if self.git_commit else ""
        time = f"{self.created_at:%Y-%m-%d %H:%M} UTC"
        return f"registered on {time} by {self.author}{commit}, digest {self.digest[:12]}"


class Deviation(NamedTuple):
    """A change of a study since its registration.

    Attributes:
        text: The change: "within 0.05 → 0.1".
        statement: The only claim that the change affects; empty if it affects all.
        label: The changed run, so that only claims which compare it are affected; empty if all are.
    """

    study: str
    text: str
    statement: str = ""
    label: str = ""

    def affects(self, study: str, statement: str, labels: Sequence[str]) -> bool:
        """Return whether the change affects a claim of a study that compares the runs with these labels."""
        is_concerned = self.statement in ("", statement) and self.label in ("", *labels)
        return self.study == study and is_concerned

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.study, self.statement, self.text)))


def content_of(name: str, spec: Mapping[str, Any], runs: Mapping[str, str]) -> dict[str, Any]:
    """Return the content to register for a study.

    Args:
        runs: "study/label" → fingerprint of the run with the first seed.
    """
    parts = {name: spec} | dict(spec.get("studies") or {})
    return {
        "family": spec.get("family"),
        "studies": {
            study: {"claims": part.get("claims") or [], **{key: part.get(key) for key in _RULES}}
            for study, part in parts.items()
        },
        "runs": dict(sorted(runs.items())),
        "code": code_digest(),
    }


def content_now(store: Snapshot, experiment: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content that a launched study would register now."""
    prefix = "" if spec.get("studies") else f"{experiment}/"  # labels in a union name their study
    runs: dict[str, str] = {}
    for run in sorted(store.rows(_RUNS, experiment=experiment), key=lambda run: run["seed"]):
        runs.setdefault(prefix + run["label"], run["fingerprint"])
    return content_of(experiment, spec, runs)


def digest_of(content: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of registered content, regardless of the order of its keys."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def compare(registered: Mapping[str, Any], now: Mapping[str, Any]) -> list[Deviation]:
    """List the changes of a study's content since its registration, except those of the code.

    Adding or removing a run is not a change by itself; adding or changing a claim is.
    """
    changes = []
    for study, part in now["studies"].items():
        before = registered["studies"].get(study, {**part, "claims": []})
        rules = _changes(_rules(registered, before), _rules(now, part))
        changes += [Deviation(study, text) for text in rules]
        known = {claim["statement"]: claim for claim in before["claims"]}
        for claim in part["claims"]:
            old = known.get(claim["statement"])
            if texts := ["not registered"] if old is None else _changes(old, claim):
                changes.append(Deviation(study, ", ".join(texts), claim["statement"]))
    for key, run in now["runs"].items():
        if registered["runs"].get(key, run) != run:
            study, _, label = key.partition("/")
            changes.append(Deviation(study, f"other config: {label}", label=label))
    return changes


def _rules(content: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of a study that affect all its verdicts."""
    metrics = {
        name: {key: value for key, value in metric.items() if key not in _DISPLAY}
        for name, metric in (study["metrics"] or {}).items()
    }
    family = Family.model_validate(content["family"])
    claims = sum(len(part["claims"]) for part in content["studies"].values())
    rules = {key: study[key] for key in _RULES} | {"metrics": metrics, "family": family.text(claims)}
    if isinstance(study["seeds"], Mapping) and not family.has_rate(claims):
        rules["seeds"] = {"until": study["seeds"]["until"]}  # the error covers any number of looks
    return rules


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the entries that differ, except the texts of a claim."""
    keys = [key for key in {**old, **new} if key not in _TEXTS and old.get(key) != new.get(key)]
    return [f"{key} {_short(old.get(key))} → {_short(new.get(key))}" for key in keys]


def _short(value: Any) -> str:
    text = "nothing" if value in (None, [], {}) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


@cache
def code_digest() -> str:
    """Compute the SHA-256 of the modules that judge claims, without their comments and docstrings."""
    folder = Path(__file__).parent
    modules = [*sorted(folder.glob("*.py")), *(folder.parent / f"{name}.py" for name in _JUDGING)]
    code = "\n".join(ast.unparse(ast.parse(module.read_bytes())) for module in modules)
    # Python 3.11 and 3.12 write the quotes of f-strings differently.
    code = re.sub(_BLANK + r"|[\\'\"]", "", code, flags=re.MULTILINE)
    return hashlib.sha256(code.encode()).hexdigest()
