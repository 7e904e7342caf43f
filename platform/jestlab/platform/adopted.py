"""Runs of other tools: `jestlab adopt` has taken in what they recorded; nothing here can run them again."""

from __future__ import annotations

NAME = "adopted"
"""The program of such runs, in the store."""

ORIGIN = "adopted_from"
"""Key of the config that says where a run came from, as `wandb:ENTITY/PROJECT/ID`; it alone is the run's
identity, so that a run is taken in once however often that is asked for."""
