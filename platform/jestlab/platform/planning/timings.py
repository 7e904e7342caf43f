"""How long runs trained, as the store knows it: what `match: {seconds: …}` solves from."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from jestlab.platform import programs
from jestlab.platform.programs import Config, Program
from jestlab.platform.spec.expand import SEED
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.tree import lookup, without

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

Plain = dict[str, Any]
"""A resolved config as the store keeps it."""


@dataclass(frozen=True)
class Timings:
    """Seconds of training per example, and how long the runs of the study's last launch were.

    A pace counts for configs that differ in nothing but seed and training length, and only beside paces of
    the same kind of device.

    Attributes:
        paces: Config without seed and length → device → seconds per example of each completed run.
        launched: Label → configs of its runs in the last launch.
    """

    paces: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    launched: Mapping[str, Sequence[Plain]] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store | None, study: Study) -> Timings:
        """Read them for a study; nothing where there is no store yet, or no run matches seconds."""
        if store is None or not matches_seconds(study):
            return cls()
        names = {member.variant.program.name for member in study.members}
        used = {name: programs.get(name) for name in names}
        paces: dict[str, dict[str, list[float]]] = {}
        for program, config, device, pace in store.paces(used):
            key = config_key(used[program], config)
            paces.setdefault(key, {}).setdefault(device, []).append(pace)
        return cls(paces, store.launched(study.name))

    def pace(self, program: Program, own: Config, other: Config) -> tuple[float, float] | None:
        """Return the median seconds per example of two configs on the device that has most runs of both; None
        where none has."""
        mine, its = (self.paces.get(config_key(program, plain(config)), {}) for config in (own, other))
        both = [device for device in mine if device in its]
        if not both:
            return None
        device = max(both, key=lambda name: min(len(mine[name]), len(its[name])))
        return statistics.median(mine[device]), statistics.median(its[device])

    def solved_before(
        self, program: Program, label: str, own: Config, other_label: str, other: Config
    ) -> int | None:
        """Return the length that was solved for in the last launch, if nothing has changed since; else None.

        Later seeds take it over: measured anew, the length would differ a little, and all would run again.
        """
        others = {
            json.dumps(without(it, [SEED]), sort_keys=True) for it in self.launched.get(other_label, ())
        }
        if json.dumps(without(plain(other), [SEED]), sort_keys=True) not in others:
            return None
        mine = config_key(program, plain(own))
        lengths = [
            length_of(program, it) for it in self.launched.get(label, ()) if config_key(program, it) == mine
        ]
        return lengths[0] if lengths else None


def matches_seconds(study: Study) -> bool:
    """Whether a run of a study, or of a part of a union, trains as long as another."""
    runs = [run for part in (study, *study.studies.values()) for run in part.runs.values()]
    return any(run.match is not None and run.match.kind == "seconds" for run in runs)


def plain(config: Config) -> Plain:
    """Return a config as the store keeps it."""
    return config.model_dump(mode="json") if isinstance(config, BaseModel) else config


def length_of(program: Program, config: Plain) -> int:
    """Return the training length in a config."""
    return int(lookup(config, program.extent or ()))


def config_key(program: Program, config: Plain) -> str:
    """Name what decides how long an example takes: the program and the config without seed and length."""
    rest = without(config, [SEED])
    if program.extent is not None:
        rest = without(rest, program.extent)
    return f"{program.name} {json.dumps(rest, sort_keys=True)}"
