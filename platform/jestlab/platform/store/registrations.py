"""Studies that are registered: what they claim and how it is judged, written down before the first run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select

from jestlab.analysis.claims.registration import digest_of
from jestlab.platform.errors import UserError
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Registration, Run, chunks, insert, now, to_json


def register(
    store: Store,
    experiment: str,
    content: dict[str, Any],
    runs: Collection[str],
    *,
    author: str,
    commit: str | None,
) -> bool:
    """Register a study, all or nothing.

    Args:
        store: Where.
        experiment: Name of the study.
        content: What is registered, from `registration.content_of`.
        runs: Fingerprints of its runs, with all seeds that it may have.
        author: Who registers it.
        commit: Of jestlab's checkout; None if it is installed otherwise.

    Returns:
        Whether it is new; False where the same was registered before.

    Raises:
        UserError: A run of it has begun.
    """
    digest = digest_of(content)
    with store.writing() as connection:
        of_study = Registration.experiment == experiment
        newest = select(Registration.digest).where(of_study).order_by(Registration.id.desc()).limit(1)
        if connection.scalar(newest) == digest:
            return False
        count = select(func.count(Run.id.distinct())).join(Attempt, Attempt.run_id == Run.id)
        begun = sum(connection.scalar(count.where(Run.fingerprint.in_(some))) or 0 for some in chunks(runs))
        if begun:
            raise UserError(
                f"{begun} of the runs of {experiment} have begun: a study is registered before its first "
                "run; a new lab (--root) has none"
            )
        row = {
            "experiment": experiment, "content": to_json(content), "digest": digest, "git_commit": commit,
            "author": author, "created_at": now(),
        }  # fmt: skip
        connection.execute(insert(connection, Registration).values(**row))
        return True
