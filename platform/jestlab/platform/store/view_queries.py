"""Definitions of the views that need more than a join: see `views.py`."""

from __future__ import annotations

from jestlab.analysis.costs import COMPONENTS
from jestlab.platform.store.records import ADOPTED

FROM_RUN = """
    SELECT {columns}
    FROM run
    JOIN member ON member.run_id = run.id"""

# v_latest: one lookup at the end of each curve, by the primary key. CROSS JOINs fix the order for SQLite,
# which would otherwise read every point.
LATEST_SQLITE = f"""{FROM_RUN}
    CROSS JOIN metric_name
    CROSS JOIN metric
    WHERE metric.run_id = run.id AND metric.name_id = metric_name.id AND metric.step = (
        SELECT MAX(last.step) FROM metric AS last
        WHERE last.run_id = run.id AND last.name_id = metric_name.id)"""
LATEST_POSTGRESQL = f"""{FROM_RUN}
    CROSS JOIN metric_name
    CROSS JOIN LATERAL (
        SELECT last.step, last.value FROM metric AS last
        WHERE last.run_id = run.id AND last.name_id = metric_name.id
        ORDER BY last.step DESC LIMIT 1) AS metric"""

# Duration of an attempt so far, in microseconds: an integer, so that both databases give the same result.
_LAST = "COALESCE(ended_at, heartbeat_at)"
MICROSECONDS_SQLITE = (
    f"((strftime('%s', {_LAST}) - strftime('%s', started_at)) * 1000000 "
    f"+ substr({_LAST}, 21) - substr(started_at, 21))"  # times are text: YYYY-MM-DD HH:MM:SS.ffffff
)
MICROSECONDS_POSTGRESQL = f"(EXTRACT(EPOCH FROM {_LAST} - started_at) * 1000000)"


def goodput(microseconds: str) -> str:
    """Return the definition of `v_goodput`, without adopted runs: their phases are unknown."""
    waited = microseconds.replace("started_at", "claimed_at").replace(_LAST, f"COALESCE(started_at, {_LAST})")
    return f"""
    WITH timed AS (
        SELECT id AS attempt_id,
            CAST({microseconds} AS double precision) / 1e6 AS held_seconds,
            CAST({waited} AS double precision) / 1e6 AS queue_seconds
        FROM attempt
    ){FROM_RUN}
    JOIN attempt ON attempt.run_id = run.id
    JOIN timed ON timed.attempt_id = attempt.id
    WHERE attempt.executor <> '{ADOPTED}'"""


FINAL = """CASE WHEN run.state = 'COMPLETED'
            AND evaluation.step = (SELECT MAX(step) FROM evaluation AS others WHERE others.run_id = run.id)
            THEN 1 ELSE 0 END AS final"""

CHIP_HOURS = """evaluation.seconds / 3600 * (SELECT CASE WHEN attempt.chips > 0 THEN attempt.chips ELSE 1 END
            FROM attempt
            WHERE attempt.run_id = run.id AND attempt.number = evaluation.attempt) AS chip_hours"""

ACTUAL_FLOPS = """(SELECT last.flops FROM (
            SELECT logged.step, logged.flops FROM (
                SELECT metric.step AS step, metric.value AS flops FROM metric
                WHERE metric.run_id = run.id AND metric.value IS NOT NULL
                    AND metric.name_id = (SELECT id FROM metric_name WHERE name = 'flops_total')
                ORDER BY metric.step DESC LIMIT 1
            ) AS logged
            UNION ALL
            SELECT evaluated.step, evaluated.flops FROM (
                SELECT evaluation.step AS step, evaluation.flops_total AS flops FROM evaluation
                WHERE evaluation.run_id = run.id AND evaluation.flops_total IS NOT NULL
                ORDER BY evaluation.step DESC LIMIT 1
            ) AS evaluated
        ) AS last ORDER BY last.step DESC LIMIT 1) AS actual_flops"""

TOTAL_FLOPS = "planned.learner + planned.scoring + COALESCE(planned.selection, 0.0) AS total_flops"
SHARE_FLOPS = """CASE WHEN planned.learner = 0 THEN 0.0 ELSE COALESCE(needed.share, 0.0) END
            AS reference_training_share_flops"""


def _planned(column: str, *components: str) -> str:
    names = ", ".join(f"'{component}'" for component in components)
    those = f"= {names}" if len(components) == 1 else f"IN ({names})"
    return f"SUM(CASE WHEN component {those} THEN flops END) AS {column}"


_TRAINING, _SCORING = COMPONENTS["learner"], COMPONENTS["scoring"] + COMPONENTS["reference_scoring"]
_PLANNED = ",\n            ".join(
    [
        *(_planned(component, component) for component in _TRAINING),
        _planned("learner", *_TRAINING, "learner"),  # adopted runs have it in the place of its components
        *(_planned(component, component) for component in _SCORING),
    ]
)


def costs(microseconds: str) -> str:
    """Return the definition of `v_costs`.

    The cost of each dependency, direct or indirect, is divided by the number of training runs that depend on
    it. For example, a run that uses a cache of embeddings shares the costs of the cache and its reference.
    """
    return f"""
    WITH RECURSIVE chain (run_id, needs_id) AS (
        SELECT need.run_id, need.needs_id FROM need
        UNION
        SELECT chain.run_id, need.needs_id FROM chain JOIN need ON need.run_id = chain.needs_id
    ), planned AS (
        SELECT run_id,
            {_PLANNED},
            SUM(flops) AS executed
        FROM cost GROUP BY run_id
    ), sharing AS (
        SELECT chain.needs_id AS run_id,
            SUM(CASE WHEN planned.learner = 0 THEN 0 ELSE 1 END) AS runs
        FROM chain LEFT JOIN planned ON planned.run_id = chain.run_id
        GROUP BY chain.needs_id
    ), needed AS (
        SELECT chain.run_id AS run_id, SUM(planned.executed) AS flops, MIN(sharing.runs) AS shared_by,
            SUM(planned.executed / CASE WHEN sharing.runs > 0 THEN sharing.runs END) AS share
        FROM chain
        JOIN sharing ON sharing.run_id = chain.needs_id
        LEFT JOIN planned ON planned.run_id = chain.needs_id
        GROUP BY chain.run_id
    ), occupied AS (
        SELECT run_id,
            CAST(SUM({microseconds}) AS double precision) / 3.6e9 AS hours,
            CAST(SUM({microseconds} * CASE WHEN chips > 0 THEN chips ELSE 1 END) AS double precision) / 3.6e9
                AS chip_hours
        FROM attempt WHERE started_at IS NOT NULL GROUP BY run_id
    ){FROM_RUN}
    LEFT JOIN planned ON planned.run_id = run.id
    LEFT JOIN needed ON needed.run_id = run.id
    LEFT JOIN budget ON budget.run_id = run.id
    LEFT JOIN occupied ON occupied.run_id = run.id"""


# An attempt resumed earlier ones if their scores before it count, even without reports of progress.
FIRST_STEP = """CASE WHEN attempt.resumed_step = 0 THEN 0
        WHEN EXISTS (SELECT 1 FROM evaluation WHERE evaluation.run_id = attempt.run_id
            AND evaluation.attempt < attempt.number AND evaluation.step BETWEEN 1 AND attempt.resumed_step)
        THEN attempt.resumed_step ELSE attempt.first_step END"""

# A retraction holds for a run until a later attempt completes it. It also holds for the runs that depend on
# it if they were claimed before that attempt: a run is claimed after its dependencies have completed.
RETRACTIONS = """
    WITH RECURSIVE retracted (origin_id, run_id) AS (
        SELECT retraction.run_id, retraction.run_id FROM retraction
        UNION
        SELECT retracted.origin_id, need.run_id FROM retracted JOIN need ON need.needs_id = retracted.run_id
    ), made AS (
        SELECT run_id, COALESCE(MAX(CASE WHEN state = 'COMPLETED' THEN claimed_at END), MAX(claimed_at))
            AS claimed_at
        FROM attempt GROUP BY run_id
    )
    SELECT {columns}
    FROM retracted
    JOIN retraction ON retraction.run_id = retracted.origin_id
    JOIN run AS origin ON origin.id = retraction.run_id
    JOIN made ON made.run_id = retracted.run_id
    JOIN run ON run.id = retracted.run_id
    JOIN member ON member.run_id = run.id
    WHERE NOT EXISTS (
        SELECT 1 FROM attempt WHERE attempt.run_id = retraction.run_id AND attempt.state = 'COMPLETED'
            AND attempt.number > retraction.number AND attempt.claimed_at <= made.claimed_at)"""

SUBJECT = """
    LEFT JOIN run ON run.id = {table}.run_id
    LEFT JOIN member ON member.run_id = run.id"""
