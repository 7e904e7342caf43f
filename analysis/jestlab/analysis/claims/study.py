"""Studies as a store keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..results import Snapshot, opens_store
from .claim import Claim, Family, Until, parse_claims

if TYPE_CHECKING:
    from ..costs import Scope

_STUDIES = "SELECT experiment, spec, scale FROM v_experiments"


@dataclass(frozen=True)
class Study:
    """The spec of a study in a store.

    Attributes:
        spec: The resolved spec.
        scale: The scale of the last launch; empty without scales.
    """

    spec: Mapping[str, Any]
    scale: str

    @property
    def claims(self) -> list[Claim]:
        """The claims of the study."""
        return parse_claims(self.spec.get("claims"))

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Specs of the studies in a union, by name; empty for an ordinary study."""
        return dict(self.spec.get("studies") or {})

    @property
    def family(self) -> Family:
        """The error rate that the claims of the study and its parts share."""
        return Family.model_validate(self.spec.get("family"))

    @property
    def until(self) -> Until | None:
        """The rule that adds seeds; None if their number is fixed."""
        seeds = self.spec.get("seeds")
        return Until.model_validate(seeds) if isinstance(seeds, Mapping) else None

    @property
    def baseline(self) -> str | None:
        """Label or run that the reports compare with; None if they name none."""
        named: str | None = self._report_option("baseline")
        return named

    @property
    def scope(self) -> Scope:
        """Scope of FLOPs in the reports."""
        scope: Scope = self._report_option("scope") or "scoring"
        return scope

    def _report_option(self, option: str) -> Any:
        reports = self.spec.get("reports") or []
        return next((report[option] for report in reports if report.get(option)), None)


@opens_store
def studies(store: Snapshot) -> dict[str, Study]:
    """Read all studies of a store, by name in alphabetical order."""
    rows = sorted(store.rows(_STUDIES), key=lambda row: row["experiment"])
    return {row["experiment"]: Study(json.loads(row["spec"]), row["scale"] or "") for row in rows}


@opens_store
def parts_of(store: Snapshot, experiment: str) -> dict[str, dict[str, Any]]:
    """Read the specs of the studies in a union, by name; empty for other experiments."""
    study = store.once(studies).get(experiment)
    return {} if study is None else study.parts
