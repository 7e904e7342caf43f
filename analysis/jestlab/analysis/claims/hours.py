"""How long the runs of an experiment have taken, all together and each label's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..connection import frame

if TYPE_CHECKING:
    from sqlalchemy import Connection

_HOURS = """
    SELECT v_costs.fingerprint, v_costs.label, v_runs.state, v_costs.actual_hours
    FROM v_costs JOIN v_runs ON v_runs.experiment = v_costs.experiment AND v_runs.label = v_costs.label
        AND v_runs.seed = v_costs.seed
    WHERE v_costs.experiment = :experiment AND v_costs.actual_hours IS NOT NULL"""


@dataclass(frozen=True)
class Hours:
    """What runs have taken.

    Attributes:
        spent: Hours of all attempts at them, two at once counting twice.
        of: Label → mean hours of its completed runs; in a union "study/label".
    """

    spent: float = 0.0
    of: Mapping[str, float] = field(default_factory=dict)

    def of_label(self, study: str, label: str) -> float:
        """Return how long a run of a label takes, in the experiment or a study of it; 0 if unknown."""
        return self.of.get(f"{study}/{label}", self.of.get(label, 0.0))

    @classmethod
    def load(cls, connection: Connection, experiment: str) -> Hours:
        """Read them.

        Args:
            connection: To the store, from `connect`.
            experiment: Its name.
        """
        rows = frame(connection, _HOURS, experiment=experiment)
        if rows.empty:
            return cls()
        done = rows[rows["state"] == "COMPLETED"].groupby("label")["actual_hours"].mean()
        return cls(float(rows.drop_duplicates("fingerprint")["actual_hours"].sum()), dict(done))
