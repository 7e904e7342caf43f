"""Whether the name of an experiment is taken by another study, or by somebody else."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import func, select

from jestlab.platform.errors import UserError
from jestlab.platform.store.records import ADOPTED, RunState
from jestlab.platform.store.rows import chunks
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Experiment, Member, Run
from jestlab.platform.whoami import user_name


def refuse_taken(store: Store, studies: Mapping[str, Collection[str]]) -> None:
    """Refuse to record studies in the place of experiments that are something else, or somebody else's.

    A study may change: more seeds, another axis, other runs. But if it has none of the runs that the
    experiment of its name has, it is another study, unless none of those has completed, so that nothing is
    replaced. An experiment that another user launched is theirs, whatever is in it. One that was imported, or
    whose owner is not known, is nobody's.

    Args:
        store: The store.
        studies: Name of each study to record → fingerprints of its runs.

    Raises:
        UserError: A name is taken; with what to type.
    """
    for name, fingerprints in studies.items():
        _refuse(store, name, fingerprints, is_part=name != next(iter(studies)))


def _refuse(store: Store, name: str, fingerprints: Collection[str], is_part: bool) -> None:
    with store.reading() as connection:
        row = connection.execute(
            select(Experiment.owner, Experiment.host, Experiment.origin).where(Experiment.name == name)
        ).one_or_none()
        if row is None:
            return
        mine = select(Member.run_id).where(Member.experiment == name)
        own = select(func.count()).select_from(Run).where(Run.id.in_(mine), Run.program != ADOPTED)
        total = connection.scalar(own) or 0
        done = connection.scalar(own.where(Run.state == RunState.COMPLETED)) or 0
        shared = sum(
            connection.scalar(own.where(Run.fingerprint.in_(chunk))) or 0 for chunk in chunks(fingerprints)
        )
    other = "another name in the union" if is_part else "--set name=NAME"
    where = f", launched on {row.host}" if row.host is not None else ""
    if row.owner is not None and row.owner != user_name() and row.origin is None:
        raise UserError(
            f"{name} is an experiment of {row.owner}{where}: take another name ({other}), "
            "or --replace to make it yours"
        )
    if done and not shared:
        raise UserError(
            f"there is an experiment {name} already, and this study has none of its {total} runs: --replace "
            f"if it is what {name} has become, or another name ({other}) to keep both"
        )
