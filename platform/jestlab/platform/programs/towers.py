"""The towers of a finished run that another run reads."""

from __future__ import annotations

from jestlab.models.config import TwoTowers
from jestlab.platform.context import Need
from jestlab.platform.errors import UserError


def towers_of(need: Need, role: str) -> TwoTowers:
    """The architecture of a finished run of towers.

    Args:
        need: The run.
        role: Under which it is needed, for the message.

    Raises:
        UserError: It makes no towers.
    """
    if "model" not in need.config:
        raise UserError(
            f"{role}: {need.directory.name} is a run of {need.program}, which makes no towers: name a run of "
            "train or weights"
        )
    return TwoTowers.model_validate(need.config["model"])
