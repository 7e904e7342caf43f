"""The store's views: the one contract with whoever reads results, in SQL that every database understands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A view: what it is for, its columns with their meaning, and its definition.

    Attributes:
        purpose: One line for people.
        columns: Column → meaning, in order.
        select: The SELECT that defines it.
        on_postgresql: The same where PostgreSQL has other words for it: it alone calculates with times.
    """

    purpose: str
    columns: dict[str, str]
    select: str
    on_postgresql: str | None = None

    def definition(self, dialect: str) -> str:
        """The SELECT in the words of a database."""
        return self.on_postgresql or self.select if dialect == "postgresql" else self.select


_WHOSE = {
    "experiment": "name of the study",
    "run": "the run's name in the study",
    "label": "name and values on the axes",
    "seed": "replicate",
    "fingerprint": "identity of the run",
}

_JOINS = """
    JOIN member ON member.run_id = run.id
    JOIN experiment ON experiment.id = member.experiment_id"""

_IDENTITY = (
    "experiment.name AS experiment, member.name AS run, member.label AS label, run.seed AS seed, "
    "run.fingerprint AS fingerprint"
)

# How long an attempt took, or takes: an exact integer, so that every database comes to the same hours.
_LAST = "COALESCE(ended_at, heartbeat_at)"
_MICROSECONDS_SQLITE = (
    f"((strftime('%s', {_LAST}) - strftime('%s', started_at)) * 1000000 "
    f"+ substr({_LAST}, 21) - substr(started_at, 21))"  # times are text: YYYY-MM-DD HH:MM:SS.ffffff
)
_MICROSECONDS_POSTGRESQL = f"(EXTRACT(EPOCH FROM {_LAST} - started_at) * 1000000)"


def _costs(microseconds: str) -> str:
    """The SELECT of `v_costs`.

    What runs need is shared run by run: through a cache of embeddings a run needs the cache and its
    reference, and each is divided by its own number of sharers. A sharer is a run that trains something: a
    cache or a diagnosis hands on what it needs, and shares nothing.
    """
    return f"""
    WITH RECURSIVE chain (run_id, needs_id) AS (
        SELECT need.run_id, need.needs_id FROM need
        UNION
        SELECT chain.run_id, need.needs_id FROM chain JOIN need ON need.run_id = chain.needs_id
    ), planned AS (
        SELECT run_id,
            SUM(CASE WHEN component = 'image_tower' THEN flops END) AS image_tower,
            SUM(CASE WHEN component = 'text_tower' THEN flops END) AS text_tower,
            SUM(CASE WHEN component = 'loss' THEN flops END) AS loss,
            SUM(CASE WHEN component IN ('image_tower', 'text_tower', 'loss', 'learner') THEN flops END)
                AS learner,
            SUM(CASE WHEN component = 'scoring' THEN flops END) AS scoring,
            SUM(CASE WHEN component = 'selection' THEN flops END) AS selection,
            SUM(CASE WHEN component = 'reference_scoring' THEN flops END) AS reference_scoring,
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
    )
    SELECT {_IDENTITY},
        planned.image_tower AS image_tower_flops, planned.text_tower AS text_tower_flops,
        planned.loss AS loss_flops, planned.learner AS learner_flops, planned.scoring AS scoring_flops,
        planned.selection AS selection_flops, planned.reference_scoring AS reference_scoring_flops,
        planned.learner + planned.scoring + COALESCE(planned.selection, 0.0) AS total_flops,
        COALESCE(needed.flops, 0.0) AS reference_training_flops,
        needed.shared_by AS reference_shared_by,
        CASE WHEN planned.learner = 0 THEN 0.0 ELSE COALESCE(needed.share, 0.0) END
            AS reference_training_share_flops,
        budget.chip AS chip, budget.chips AS chips, budget.chip_hours AS planned_chip_hours,
        budget.dollars AS planned_dollars,
        (SELECT last.flops FROM (
            SELECT logged.step, logged.flops FROM (
                SELECT metric.step AS step, metric.value AS flops FROM metric
                WHERE metric.run_id = run.id AND metric.value IS NOT NULL
                    AND metric.name_id = (SELECT id FROM metric_name WHERE name = 'flops_total')
                ORDER BY metric.step DESC LIMIT 1
            ) AS logged
            UNION ALL
            SELECT evaluated.step, evaluated.flops FROM (
                SELECT evaluation.step AS step, evaluation.flops_total AS flops FROM evaluation
                WHERE evaluation.run_id = run.id
                ORDER BY evaluation.step DESC LIMIT 1
            ) AS evaluated
        ) AS last ORDER BY last.step DESC LIMIT 1) AS actual_flops,
        occupied.hours AS actual_hours, occupied.chip_hours AS actual_chip_hours
    FROM run{_JOINS}
    LEFT JOIN planned ON planned.run_id = run.id
    LEFT JOIN needed ON needed.run_id = run.id
    LEFT JOIN budget ON budget.run_id = run.id
    LEFT JOIN occupied ON occupied.run_id = run.id"""


def _latest(joined: str, condition: str = "") -> str:
    """The SELECT of `v_latest`: for each run and name a look at the end of the curve, by the primary key.

    SQLite joins in the order of the CROSS JOINs; left to itself it would look at every point.
    """
    return f"""
    SELECT {_IDENTITY}, metric_name.name AS name, metric.step AS step, metric.value AS value
    FROM run{_JOINS}
    CROSS JOIN metric_name
    {joined}
    {condition}"""


VIEWS: dict[str, View] = {
    "v_experiments": View(
        "one row for each study, as it was last launched",
        {
            "experiment": "name of the study",
            "question": "what the study asks",
            "paper": "the figure or table of the paper that it reproduces",
            "scale": "scale it was last launched at",
            "spec": "the resolved spec, JSON: launches the same runs",
            "created_at": "when it was first launched, UTC",
            "updated_at": "when it was last launched, UTC",
        },
        """
    SELECT experiment.name AS experiment, experiment.question AS question, experiment.paper AS paper,
        experiment.scale AS scale, experiment.spec AS spec, experiment.created_at AS created_at,
        experiment.updated_at AS updated_at
    FROM experiment""",
    ),
    "v_runs": View(
        "one row for each run of each study",
        {
            "experiment": "name of the study",
            "question": "what the study asks",
            "run": "the run's name in the study",
            "label": "name and values on the axes",
            "seed": "replicate",
            "position": "order in the study",
            "fingerprint": "identity of the run",
            "run_id": "number of the run in this store",
            "program": "what it executes",
            "state": "PENDING, BLOCKED, RUNNING, COMPLETED, FAILED, CANCELLED, PREEMPTED or SKIPPED",
            "reason": "why it is in that state, if it did not complete",
            "step": "steps done",
            "total_steps": "steps in all",
            "point": "values on the axes, JSON",
            "config": "resolved config, JSON",
            "directory": "its folder, relative to the lab's root",
            "attempts": "how often a worker took it up",
            "started_at": "begin of the last attempt, UTC",
            "ended_at": "end of the last attempt, UTC",
            "scale": "scale the study was last launched at",
            "needed": "1 where other runs of the study refer to this name, other than to diagnose it, else 0",
        },
        f"""
    SELECT experiment.name AS experiment, experiment.question AS question, member.name AS run,
        member.label AS label, run.seed AS seed, member.position AS position, run.fingerprint AS fingerprint,
        run.id AS run_id,
        run.program AS program, run.state AS state, run.reason AS reason, run.step AS step,
        run.total_steps AS total_steps, member.point AS point, run.config AS config,
        run.directory AS directory, COALESCE(latest.number, 0) AS attempts, latest.started_at AS started_at,
        latest.ended_at AS ended_at, experiment.scale AS scale,
        member.needed AS needed
    FROM run{_JOINS}
    LEFT JOIN attempt AS latest ON latest.run_id = run.id
        AND latest.number = (SELECT MAX(number) FROM attempt WHERE attempt.run_id = run.id)""",
    ),
    "v_metrics": View(
        "every metric of every run at every step",
        {
            **_WHOSE,
            "name": "metric",
            "step": "step",
            "value": "value; NULL where it was not a number",
        },
        f"""
    SELECT {_IDENTITY}, metric_name.name AS name, metric.step AS step,
        metric.value AS value
    FROM run{_JOINS}
    JOIN metric ON metric.run_id = run.id
    JOIN metric_name ON metric_name.id = metric.name_id""",
    ),
    "v_latest": View(
        "the last value of every metric of every run",
        {
            **_WHOSE,
            "name": "metric",
            "step": "its last step",
            "value": "value; NULL where it was not a number",
        },
        _latest(
            "CROSS JOIN metric",
            """WHERE metric.run_id = run.id AND metric.name_id = metric_name.id AND metric.step = (
        SELECT MAX(last.step) FROM metric AS last
        WHERE last.run_id = run.id AND last.name_id = metric_name.id)""",
        ),
        _latest(
            """CROSS JOIN LATERAL (
        SELECT last.step, last.value FROM metric AS last
        WHERE last.run_id = run.id AND last.name_id = metric_name.id
        ORDER BY last.step DESC LIMIT 1) AS metric"""
        ),
    ),
    "v_evaluations": View(
        "every score of every run, during and after training",
        {
            **_WHOSE,
            "run_id": "number of the run in this store",
            "dataset": "dataset",
            "metric": "metric",
            "name": "dataset/metric",
            "step": "step",
            "value": "score; NULL where it was not a number",
            "examples_seen": "by the learner, until then",
            "flops_total": "learner, scoring and selection, until then",
            "final": "1 at the last step of a completed run, else 0",
        },
        f"""
    SELECT {_IDENTITY}, run.id AS run_id, evaluation.dataset AS dataset, evaluation.metric AS metric,
        evaluation.dataset || '/' || evaluation.metric AS name, evaluation.step AS step,
        evaluation.value AS value, evaluation.examples_seen AS examples_seen,
        evaluation.flops_total AS flops_total,
        CASE WHEN run.state = 'COMPLETED'
            AND evaluation.step = (SELECT MAX(step) FROM evaluation AS others WHERE others.run_id = run.id)
            THEN 1 ELSE 0 END AS final
    FROM run{_JOINS}
    JOIN evaluation ON evaluation.run_id = run.id""",
    ),
    "v_costs": View(
        "planned and actual cost of every run; NULL where it is not known",
        {
            **_WHOSE,
            "image_tower_flops": "planned: training the image tower; NULL in rows of older code",
            "text_tower_flops": "planned: training the text tower; NULL in rows of older code",
            "loss_flops": "planned: the loss, forward and backward; NULL in rows of older code",
            "learner_flops": "planned: training the learner: towers and loss",
            "scoring_flops": "planned: the learner's scoring of super-batches",
            "selection_flops": "planned: choosing sub-batches; NULL in rows of older code",
            "reference_scoring_flops": "planned: the reference's scoring; 0 where it is cached",
            "total_flops": "planned: learner, scoring and selection",
            "reference_training_flops": "planned: all that the runs it needs compute, themselves or through "
            "others: a reference's training, the embeddings in a cache",
            "reference_shared_by": "how many runs of the store train by what it needs, of several needed "
            "runs by the one that the fewest share; NULL where it needs none",
            "reference_training_share_flops": "reference_training_flops, each needed run's divided by the "
            "runs that train by it: a lone run pays all; 0 for what trains nothing",
            "chip": "what it was planned to occupy: v5e, v6e, …; local: a process of a machine",
            "chips": "planned: how many at a time",
            "planned_chip_hours": "planned: chips × hours",
            "planned_dollars": "planned: by the price of a chip-hour",
            "actual_flops": "learner, scoring and selection, until now: what was done again counts once",
            "actual_hours": "of all attempts, until now",
            "actual_chip_hours": "chips × hours of all attempts, until now; without a chip, hours",
        },
        _costs(_MICROSECONDS_SQLITE),
        _costs(_MICROSECONDS_POSTGRESQL),
    ),
    "v_attempts": View(
        "every go at every run: when, where, by what code, and how it ended",
        {
            **_WHOSE,
            "number": "1, 2, … within the run",
            "state": "PENDING until its worker begins, then RUNNING, then how it ended",
            "reason": "why, if it did not complete",
            "executor": "where it was launched: local, vertex, kubernetes",
            "handle": "the executor's name of the job",
            "chips": "accelerator chips that it occupies",
            "lease_seconds": "for how long its worker may be silent",
            "claimed_at": "when a launcher took the run, UTC",
            "started_at": "when its worker began, UTC",
            "heartbeat_at": "when it was last known to live, UTC",
            "ended_at": "when it ended, UTC",
            "exit_code": "of its process; minus the signal's number when a signal ended it",
            "host": "name of the machine",
            "pid": "its process there",
            "device": "what it computed on, in words",
            "log": "its log, relative to the lab's root",
            "git_commit": "of the code",
            "git_patch": "what that commit lacks of the code",
            "versions": "package → version, JSON",
            "environment": "variables that may matter, JSON",
        },
        f"""
    SELECT {_IDENTITY}, attempt.number AS number, attempt.state AS state, attempt.reason AS reason,
        attempt.executor AS executor, attempt.handle AS handle, attempt.chips AS chips,
        attempt.lease_seconds AS lease_seconds, attempt.claimed_at AS claimed_at,
        attempt.started_at AS started_at,
        attempt.heartbeat_at AS heartbeat_at, attempt.ended_at AS ended_at, attempt.exit_code AS exit_code,
        attempt.host AS host, attempt.pid AS pid, attempt.device AS device, attempt.log AS log,
        attempt.git_commit AS git_commit, attempt.git_patch AS git_patch, attempt.versions AS versions,
        attempt.environment AS environment
    FROM run{_JOINS}
    JOIN attempt ON attempt.run_id = run.id""",
    ),
    "v_artifacts": View(
        "files and folders that runs recorded",
        {
            **_WHOSE,
            "name": "what the run calls it",
            "uri": "where it lies, relative to the lab's root",
            "size": "bytes",
            "sha256": "digest of its content",
        },
        f"""
    SELECT {_IDENTITY}, artifact.name AS name, artifact.uri AS uri, artifact.size AS size,
        artifact.sha256 AS sha256
    FROM run{_JOINS}
    JOIN artifact ON artifact.run_id = run.id""",
    ),
    "v_notes": View(
        "notes and tags, with what they are about",
        {
            "kind": "note or tag",
            "experiment": "name of the study; NULL for a run that stands in none any more",
            "run": "the run's name in the study; NULL if it is about the study",
            "label": "name and values on the axes",
            "seed": "replicate",
            "fingerprint": "identity of the run",
            "text": "what was written, or the tag's name",
            "author": "who wrote it; NULL for a tag",
            "created_at": "when, UTC",
        },
        """
    SELECT 'note' AS kind, COALESCE(study.name, experiment.name) AS experiment, member.name AS run,
        member.label AS label, run.seed AS seed, run.fingerprint AS fingerprint, note.text AS text,
        note.author AS author, note.created_at AS created_at
    FROM note
    LEFT JOIN experiment AS study ON study.id = note.experiment_id
    LEFT JOIN run ON run.id = note.run_id
    LEFT JOIN member ON member.run_id = run.id
    LEFT JOIN experiment ON experiment.id = member.experiment_id
    UNION ALL
    SELECT 'tag' AS kind, COALESCE(study.name, experiment.name) AS experiment, member.name AS run,
        member.label AS label, run.seed AS seed, run.fingerprint AS fingerprint, tag.name AS text,
        NULL AS author, tag.created_at AS created_at
    FROM tag
    LEFT JOIN experiment AS study ON study.id = tag.experiment_id
    LEFT JOIN run ON run.id = tag.run_id
    LEFT JOIN member ON member.run_id = run.id
    LEFT JOIN experiment ON experiment.id = member.experiment_id""",
    ),
    "v_published": View(
        "every cell of every published table that was imported",
        {
            "source": "where it is published",
            "table_name": "the table there",
            "position": "the row in the table, from 1",
            "group_name": "rows that are compared with one baseline; empty without groups",
            "method": "what was trained",
            "variant": "of the method, such as B or L",
            "data": "what it was trained on",
            "citation": "whose method it is, for people; empty where it is the source's own",
            "citation_key": "the same as BibTeX has it",
            "ours": "1 where the source marks the row as its authors' own, else 0",
            "baseline": "1 where the row is what its group is compared with, else 0",
            "accounting": "formula of its FLOPs per iteration: iid, jest, flexi; empty where there is none",
            "quantity": "what the cell says: examples_seen, flops_total, mean, imagenet/zero_shot, …",
            "printed": "exactly what is printed",
            "value": "the same as a number: a share of 1 for percent and shares, a count, 1 or 0",
            "unit": "of the printed text: percent, share, count or flag",
            "bold": "1 where it is printed bold, else 0",
            "note": "what to know before comparing it with others",
            "updated_at": "when it was imported as it is, UTC",
        },
        """
    SELECT source, table_name, position, group_name, method, variant, data, citation, citation_key, ours,
        baseline, accounting, quantity, printed, value, unit, bold, note, updated_at
    FROM published""",
    ),
}
