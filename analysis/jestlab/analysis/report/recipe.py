"""How to make an experiment again: its spec, the code that ran, the commands."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .history import History


@dataclass(frozen=True)
class Recipe:
    """What somebody needs who wants the same results.

    Attributes:
        spec: The resolved spec as YAML.
        commands: To be typed in this order.
        code: What ran, most attempts first: a line for each commit and its machines.
        versions: Package → versions, of all attempts.
        caveats: What is not the same for all attempts, or not known.
    """

    spec: str
    commands: tuple[str, ...]
    code: tuple[str, ...]
    versions: dict[str, str]
    caveats: tuple[str, ...]


def recipe(history: History, baseline: str | None, scope: str) -> Recipe:
    """How to make an experiment again.

    Args:
        history: Of it.
        baseline: As the report was asked for it.
        scope: As the report was asked for it.
    """
    import yaml

    attempts = history.attempts[history.attempts["started_at"].notna()]
    spec = yaml.safe_dump(history.spec, sort_keys=False, allow_unicode=True, width=100)
    name = shlex.quote(history.experiment)
    options = f" --baseline {shlex.quote(baseline)}" if baseline else ""
    options += f" --scope {scope}" if scope != "scoring" else ""
    ran = zip(attempts["git_commit"], attempts["patched"], attempts["device"], strict=True)
    where = Counter((_known(commit), bool(patched), _known(device)) for commit, patched, device in ran)
    code = tuple(_ran(*told, attempts=count) for told, count in where.most_common())
    caveats = []
    if attempts["patched"].any():
        caveats.append(
            "The code differed from its commit; the store keeps what differed: "
            f"jestlab query \"SELECT git_patch FROM v_attempts WHERE experiment = '{history.experiment}'\""
        )
    if attempts["git_commit"].nunique() > 1:
        caveats.append("Not all runs were made by the same commit.")
    versions = _versions(list(attempts["versions"].dropna().unique()))
    return Recipe(
        spec=spec,
        commands=(
            "jestlab launch study.yaml",
            f"jestlab table {name}{options}",
            f"jestlab plot {name}{options}",
            f"jestlab report {name}{options}",
        ),
        code=code,
        versions=versions,
        caveats=tuple(caveats),
    )


def _known(text: object) -> str:
    return text if isinstance(text, str) else ""


def _ran(commit: str, patched: bool, device: str, attempts: int) -> str:
    code = f"commit {commit[:12]}{' with changes' if patched else ''}" if commit else "code of no checkout"
    count = f"{attempts} {'attempt' if attempts == 1 else 'attempts'}"
    return f"{code} on {device or 'an unknown device'}: {count}"


def _versions(documents: list[str]) -> dict[str, str]:
    """Package → its version, or its versions."""
    seen: dict[str, list[str]] = {}
    for document in documents:
        for package, version in json.loads(document).items():
            found = seen.setdefault(str(package), [])
            if str(version) not in found:
                found.append(str(version))
    return {package: ", ".join(found) for package, found in sorted(seen.items())}
