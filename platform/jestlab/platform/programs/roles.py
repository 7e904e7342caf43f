"""Check that the runs which a run needs can serve it, before any of them starts."""

from __future__ import annotations

from collections.abc import Mapping

from jestlab.models.config import DiagnoseConfig, EmbedConfig, ScoreConfig, TrainConfig, WeightsConfig
from jestlab.platform.errors import UserError
from jestlab.platform.programs.pricing import (
    DATA_SCORES,
    DIAGNOSE_LEARNER,
    DIAGNOSE_REFERENCE,
    EMBED_REFERENCE,
    SCORE_EMBEDDINGS,
    SCORE_TARGET,
    TRAIN_REFERENCE,
)
from jestlab.platform.spec.program import Config

Needs = Mapping[str, Config]
"""Role → config of the run in it. Configs of programs of one's own are plain mappings."""


def check_train(config: TrainConfig, needs: Needs) -> None:
    """Check the reference of a training run, and the scores that its data are filtered by; UserError."""
    _check_scores(config.data.reads_scores, needs)
    if not config.needs_reference:
        return
    _check_reference(needs, TRAIN_REFERENCE)
    if isinstance(needs.get(TRAIN_REFERENCE), EmbedConfig) and (problem := config.problem_with_cache):
        raise UserError(problem)


def check_embed(config: EmbedConfig, needs: Needs) -> None:
    """Check the reference of a run that embeds; UserError."""
    _check_scores(config.data.reads_scores, needs)
    _check_towers(needs, EMBED_REFERENCE)


def check_score(config: ScoreConfig, needs: Needs) -> None:
    """Check the embeddings that a run scores; UserError."""
    for role in (SCORE_EMBEDDINGS, SCORE_TARGET):
        if role in needs and not isinstance(needs[role], EmbedConfig):
            raise UserError(f"{role}: is no run of embed: name one")


def check_diagnose(config: DiagnoseConfig, needs: Needs) -> None:
    """Check learner and reference of a diagnosis; UserError."""
    _check_scores(config.data.reads_scores, needs)
    _check_towers(needs, DIAGNOSE_LEARNER)
    if config.needs_reference:
        _check_reference(needs, DIAGNOSE_REFERENCE)


def _check_scores(reads: bool, needs: Needs) -> None:
    if reads and DATA_SCORES in needs and not isinstance(needs[DATA_SCORES], ScoreConfig):
        raise UserError(f"{DATA_SCORES}: is no run of score: name one")


def _check_reference(needs: Needs, role: str) -> None:
    """Check a reference that may be cached."""
    if not isinstance(needs.get(role), EmbedConfig):
        _check_towers(needs, role, ", weights or embed")


def _check_towers(needs: Needs, role: str, others: str = " or weights") -> None:
    """Check that a run makes towers, as one of a program of one's own may."""
    if role not in needs:
        return
    run = needs[role]
    if not isinstance(run, TrainConfig | WeightsConfig) and not (isinstance(run, dict) and "model" in run):
        raise UserError(f"{role}: its run makes no towers: name a run of train{others}")
