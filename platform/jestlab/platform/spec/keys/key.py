"""One key that a spec can give, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

REQUIRED = "required"
"""Stands for the default of a key that has none."""


@dataclass(frozen=True)
class Key:
    """One key that a spec can give.

    Attributes:
        path: Dotted, with `<…>` where a name or a number stands: `selection.rule`, `runs.<run>.needs`. A key
            of configs begins at the config, as it is written below `base` and below a run.
        type: In a spec writer's words.
        default: As YAML writes it; "required" if there is none, empty if something else decides.
        meaning: One or several sentences.
        where: The programs whose configs have it; of a report's option the reports; else what has it.
        identity: Whether another value makes another run: part of what is hashed as its fingerprint.
        choices: The values that are built in, where these are few.
        kind: The `kind` of the section that has it, where it has several.
        example: One line of YAML.
    """

    path: str
    type: str
    default: str
    meaning: str
    where: tuple[str, ...]
    identity: bool
    choices: tuple[str, ...] = ()
    kind: str = ""
    example: str = ""

    @property
    def section(self) -> str:
        """The path without its last part."""
        return self.path.rpartition(".")[0]

    @property
    def told(self) -> str:
        """The meaning, after the kind that it holds for."""
        return f"Of kind {self.kind}: {self.meaning}" if self.kind else self.meaning
