"""The store's views, the stable interface for reading results, in SQL that both databases understand.

Views hold no data: a changed definition needs no new schema, only `jestlab db upgrade`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jestlab.analysis.costs import COMPONENTS
from jestlab.platform.store.records import ADOPTED


@dataclass(frozen=True)
class View:
    """A view.

    Attributes:
        fields: SQL of each column → its meaning, in order. `table.name` is the column `name`; any other
            expression ends in `AS name`.
        body: Its definition, in which `{columns}` stands for the columns.
        on_postgresql: Its definition for PostgreSQL, if that differs.
    """

    fields: dict[str, str]
    body: str
    on_postgresql: str | None = None

    @cached_property
    def columns(self) -> dict[str, str]:
        """Column → meaning, in order."""
        return {_column(sql): meaning for sql, meaning in self.fields.items()}

    def definition(self, dialect: str) -> str:
        """Return the SELECT for `sqlite` or `postgresql`."""
        body = self.on_postgresql if dialect == "postgresql" and self.on_postgresql else self.body
        columns = [
            sql if " AS " in sql or "." not in sql else f"{sql} AS {_column(sql)}" for sql in self.fields
        ]
        return body.replace("{columns}", ", ".join(columns))


def _column(sql: str) -> str:
    return sql.rpartition(" AS ")[2].rpartition(".")[2]


_OF_RUN = {
    "member.experiment": "name of the study",
    "member.name AS run": "name of the run in the study",
    "member.label": "name of the run and its values on the axes",
    "run.seed": "replicate",
    "run.fingerprint": "identity of the run",
}

_FROM_RUN = """
    SELECT {columns}
    FROM run
    JOIN member ON member.run_id = run.id"""

# ---- v_latest: for each run and name a look at the end of the curve, by the primary key. SQLite joins in the
# order of the CROSS JOINs; left to itself it would look at every point.

_LATEST_SQLITE = f"""{_FROM_RUN}
    CROSS JOIN metric_name
    CROSS JOIN metric
    WHERE metric.run_id = run.id AND metric.name_id = metric_name.id AND metric.step = (
        SELECT MAX(last.step) FROM metric AS last
        WHERE last.run_id = run.id AND last.name_id = metric_name.id)"""
_LATEST_POSTGRESQL = f"""{_FROM_RUN}
    CROSS JOIN metric_name
    CROSS JOIN LATERAL (
        SELECT last.step, last.value FROM metric AS last
        WHERE last.run_id = run.id AND last.name_id = metric_name.id
        ORDER BY last.step DESC LIMIT 1) AS metric"""

# ---- v_costs

# Duration of an attempt so far, in microseconds: an integer, so that both databases give exactly the same.
_LAST = "COALESCE(ended_at, heartbeat_at)"
_MICROSECONDS_SQLITE = (
    f"((strftime('%s', {_LAST}) - strftime('%s', started_at)) * 1000000 "
    f"+ substr({_LAST}, 21) - substr(started_at, 21))"  # times are text: YYYY-MM-DD HH:MM:SS.ffffff
)
_MICROSECONDS_POSTGRESQL = f"(EXTRACT(EPOCH FROM {_LAST} - started_at) * 1000000)"

# ---- v_goodput


def _goodput(microseconds: str) -> str:
    """The definition of `v_goodput`: `timed` has the time held, and the time until a worker began.

    Where the time of adopted runs went, nobody has measured.
    """
    waited = microseconds.replace("started_at", "claimed_at").replace(_LAST, f"COALESCE(started_at, {_LAST})")
    return f"""
    WITH timed AS (
        SELECT id AS attempt_id,
            CAST({microseconds} AS double precision) / 1e6 AS held_seconds,
            CAST({waited} AS double precision) / 1e6 AS queue_seconds
        FROM attempt
    ){_FROM_RUN}
    JOIN attempt ON attempt.run_id = run.id
    JOIN timed ON timed.attempt_id = attempt.id
    WHERE attempt.executor <> '{ADOPTED}'"""


_FINAL = """CASE WHEN run.state = 'COMPLETED'
            AND evaluation.step = (SELECT MAX(step) FROM evaluation AS others WHERE others.run_id = run.id)
            THEN 1 ELSE 0 END AS final"""

_CHIP_HOURS = """evaluation.seconds / 3600 * (SELECT CASE WHEN attempt.chips > 0 THEN attempt.chips ELSE 1 END
            FROM attempt
            WHERE attempt.run_id = run.id AND attempt.number = evaluation.attempt) AS chip_hours"""

_ACTUAL_FLOPS = """(SELECT last.flops FROM (
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

_TOTAL_FLOPS = "planned.learner + planned.scoring + COALESCE(planned.selection, 0.0) AS total_flops"
_SHARE_FLOPS = """CASE WHEN planned.learner = 0 THEN 0.0 ELSE COALESCE(needed.share, 0.0) END
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


def _costs(microseconds: str) -> str:
    """The definition of `v_costs`.

    The cost of needed runs is shared run by run: through a cache of embeddings a run needs the cache and its
    reference, and the cost of each is divided by its own number of sharers. A sharer is a run that trains:
    caches and diagnoses pass on what they need and do not count.
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
    ){_FROM_RUN}
    LEFT JOIN planned ON planned.run_id = run.id
    LEFT JOIN needed ON needed.run_id = run.id
    LEFT JOIN budget ON budget.run_id = run.id
    LEFT JOIN occupied ON occupied.run_id = run.id"""


# ---- v_attempts

# An attempt resumed earlier ones if scores of theirs before it count, even if no progress was reported.
FIRST_STEP = """CASE WHEN attempt.resumed_step = 0 THEN 0
        WHEN EXISTS (SELECT 1 FROM evaluation WHERE evaluation.run_id = attempt.run_id
            AND evaluation.attempt < attempt.number AND evaluation.step BETWEEN 1 AND attempt.resumed_step)
        THEN attempt.resumed_step ELSE attempt.first_step END"""

# ---- v_retractions

# A retraction holds for a run until a later attempt completes it. It also holds for the runs that depend on
# it if they were claimed before that attempt: a run is claimed after its dependencies have completed.
_RETRACTIONS = """
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

# ---- v_notes

_SUBJECT = """
    LEFT JOIN run ON run.id = {table}.run_id
    LEFT JOIN member ON member.run_id = run.id"""

VIEWS: dict[str, View] = {
    # One row for each study, as it was last launched.
    "v_experiments": View(
        {
            "experiment.name AS experiment": "name of the study",
            "experiment.question": "question that the study answers",
            "experiment.paper": "figure or table of the paper that it reproduces",
            "experiment.scale": "scale of the last launch",
            "experiment.spec": "resolved spec, JSON; launching it launches the same runs",
            "experiment.created_at": "time of the first launch, UTC",
            "experiment.updated_at": "time of the last launch, UTC",
            "experiment.origin": "archive that the study came from, JSON; NULL if it was launched here",
            "experiment.owner": "user who launched it last; NULL if unknown",
            "experiment.host": "machine that it was last launched from; NULL if unknown",
        },
        "SELECT {columns} FROM experiment",
    ),
    # One row for each run of each study.
    "v_runs": View(
        {
            "member.experiment": "name of the study",
            "experiment.question": "question that the study answers",
            "member.name AS run": "name of the run in the study",
            "member.label": "name of the run and its values on the axes",
            "run.seed": "replicate",
            "member.position": "order in the study",
            "run.fingerprint": "identity of the run",
            "run.id AS run_id": "number of the run, the same in every store",
            "run.program": "program that the run executes",
            "run.state": "PENDING, BLOCKED, RUNNING, COMPLETED, FAILED, CANCELLED, PREEMPTED or SKIPPED",
            "run.reason": "reason for the state, if the run did not complete",
            "run.step": "steps done",
            "run.total_steps": "total number of steps",
            "member.point": "values on the axes, JSON",
            "run.config": "resolved config, JSON",
            "run.directory": "folder of the run, relative to the lab's root",
            "COALESCE(latest.number, 0) AS attempts": "number of attempts",
            "latest.started_at": "start of the last attempt, UTC",
            "latest.ended_at": "end of the last attempt, UTC",
            "experiment.scale": "scale of the study's last launch",
            "member.needed": "1 if other runs of the study refer to this name, except to diagnose it, else 0",
        },
        f"""{_FROM_RUN}
    JOIN experiment ON experiment.name = member.experiment
    LEFT JOIN attempt AS latest ON latest.run_id = run.id
        AND latest.number = (SELECT MAX(number) FROM attempt WHERE attempt.run_id = run.id)""",
    ),
    # Every metric of every run at every step.
    "v_metrics": View(
        {
            **_OF_RUN,
            "metric_name.name": "metric",
            "metric.step": "step",
            "metric.value": "value; NULL for NaN",
        },
        f"""{_FROM_RUN}
    JOIN metric ON metric.run_id = run.id
    JOIN metric_name ON metric_name.id = metric.name_id""",
    ),
    # The last value of every metric of every run.
    "v_latest": View(
        {
            **_OF_RUN,
            "metric_name.name": "metric",
            "metric.step": "last step of the metric",
            "metric.value": "value; NULL for NaN",
        },
        _LATEST_SQLITE,
        _LATEST_POSTGRESQL,
    ),
    # Every score of every run, during and after training.
    "v_evaluations": View(
        {
            **_OF_RUN,
            "run.id AS run_id": "number of the run, the same in every store",
            "evaluation.dataset": "dataset",
            "evaluation.metric": "metric",
            "evaluation.dataset || '/' || evaluation.metric AS name": "dataset/metric",
            "evaluation.step": "step",
            "evaluation.value": "score; NULL for NaN",
            "evaluation.examples_seen": "examples that the learner had seen by then; NULL if unknown",
            "evaluation.flops_total": "FLOPs of learner, scoring and selection by then; NULL if unknown",
            "evaluation.seconds": "seconds of training by then; NULL if unknown",
            _CHIP_HOURS: "chips × hours of training by then; hours if there are no chips; NULL if unknown",
            _FINAL: "1 at the last step of a completed run, else 0",
        },
        f"{_FROM_RUN} JOIN evaluation ON evaluation.run_id = run.id",
    ),
    # Planned and actual cost of every run; NULL where it is unknown.
    "v_costs": View(
        {
            **_OF_RUN,
            "planned.image_tower AS image_tower_flops": "planned: training the image tower; NULL if adopted",
            "planned.text_tower AS text_tower_flops": "planned: training the text tower; NULL if adopted",
            "planned.loss AS loss_flops": "planned: loss, forward and backward; NULL if adopted",
            "planned.learner AS learner_flops": "planned: training the learner, towers and loss",
            "planned.scoring AS scoring_flops": "planned: the learner's scoring of super-batches",
            "planned.selection AS selection_flops": "planned: selecting sub-batches; NULL if adopted",
            "planned.reference_scoring AS reference_scoring_flops": "planned: the reference's; 0 if cached",
            _TOTAL_FLOPS: "planned: learner, scoring and selection",
            "COALESCE(needed.flops, 0.0) AS reference_training_flops": "planned: all that the needed runs "
            "compute, themselves or through others: a reference's training, the embeddings in a cache",
            "needed.shared_by AS reference_shared_by": "number of runs in the store that train with a needed "
            "run, for the needed run that the fewest share; NULL without needed runs",
            _SHARE_FLOPS: "reference_training_flops, with each needed run's divided by the number of runs "
            "that train with it; 0 for runs that train nothing",
            "budget.chip": "planned: type of chip: v5e, v6e, …; gpu; local: chips are not counted",
            "budget.chips": "planned: number of chips",
            "budget.chip_hours AS planned_chip_hours": "planned: chips × hours",
            "budget.dollars AS planned_dollars": "planned: chip-hours × price",
            _ACTUAL_FLOPS: "learner, scoring and selection so far; repeated steps count once",
            "occupied.hours AS actual_hours": "hours of all attempts so far",
            "occupied.chip_hours AS actual_chip_hours": "chips × hours so far; hours if there are no chips",
        },
        _costs(_MICROSECONDS_SQLITE),
        _costs(_MICROSECONDS_POSTGRESQL),
    ),
    # Where the time of every attempt went, as its worker measured it; NULL where that is unknown. What had to
    # be done again follows from the steps: `jestlab costs --goodput`.
    "v_goodput": View(
        {
            **_OF_RUN,
            "attempt.number": "1, 2, … within the run",
            "attempt.state": "PENDING until the worker starts, then RUNNING, then the final state",
            "attempt.chips": "number of accelerator chips that it occupies; 0: a machine without",
            "timed.queue_seconds": "from the claim until the worker started; not held",
            "timed.held_seconds": "from the start of the worker's process until the end, or its last "
            "heartbeat; NULL before the start",
            "attempt.startup_seconds": "until the first step, without compilation",
            "attempt.compilation_seconds": "tracing, lowering, compiling, loading compiled programs",
            "attempt.training_seconds": "training, also what had to be done again later",
            "attempt.evaluation_seconds": "evaluation",
            "attempt.checkpoint_seconds": "waiting for checkpoints",
            "attempt.winddown_seconds": "after the program's end; NULL before it",
            "attempt.resumed_step": "steps that were done when it went on",
            "attempt.reached_step": "steps that were done at its last report",
            "attempt.saved_step": "steps that its last complete checkpoint holds; NULL before the first",
            "attempt.saved_seconds": "seconds of training and evaluation until that checkpoint",
        },
        _goodput(_MICROSECONDS_SQLITE),
        _goodput(_MICROSECONDS_POSTGRESQL),
    ),
    # Every attempt at every run: when, where, with which code, and how it ended.
    "v_attempts": View(
        {
            **_OF_RUN,
            "attempt.number": "1, 2, … within the run",
            "attempt.state": "PENDING until the worker starts, then RUNNING, then the final state",
            "attempt.reason": "reason for the state, if the attempt did not complete",
            "attempt.executor": "executor that launched it: local, vertex, kubernetes or slurm; or adopted",
            "attempt.handle": "the executor's name of the job; of an adopted run, where it was read from",
            "attempt.chips": "number of accelerator chips that it occupies",
            "attempt.lease_seconds": "seconds without a heartbeat after which the worker counts as lost",
            f"{FIRST_STEP} AS first_step": "step of the run when the attempt began; 0: it started over",
            "attempt.claimed_at": "time at which a launcher claimed the run, UTC",
            "attempt.started_at": "time at which the worker started, UTC",
            "attempt.heartbeat_at": "time of the last heartbeat, UTC",
            "attempt.ended_at": "time at which it ended, UTC",
            "attempt.exit_code": "exit code of the process; −n if signal n ended it",
            "attempt.host": "host name of the machine",
            "attempt.pid": "process id on that machine",
            "attempt.device": "processor or accelerator, in words",
            "attempt.log": "log file, relative to the lab's root",
            "attempt.git_commit": "commit of jestlab's own checkout; NULL if jestlab is installed otherwise",
            "attempt.git_patch": "uncommitted changes of jestlab's own checkout",
            "attempt.code_commit": "commit of the repository of the user's own code; NULL without one",
            "attempt.code_patch": "uncommitted changes of the user's own repository",
            "attempt.sources": "file of the user's own code → SHA-256, JSON; NULL: unknown, or no such code",
            "attempt.inputs": "file or folder that the spec's `record` names → SHA-256, JSON",
            "attempt.versions": "package → version, JSON",
            "attempt.environment": "environment variables that may matter, JSON",
            "(SELECT lab.address FROM lab WHERE lab.uid = attempt.lab) AS lab": "where the lab was "
            "last that has its files: a folder, or a bucket's URL; NULL where unknown",
        },
        f"{_FROM_RUN} JOIN attempt ON attempt.run_id = run.id",
    ),
    # Files and folders that runs recorded.
    "v_artifacts": View(
        {
            **_OF_RUN,
            "artifact.name": "name that the run gave it",
            "artifact.uri": "path, relative to the lab's root",
            "artifact.size": "bytes",
            "artifact.sha256": "digest of the content",
        },
        f"{_FROM_RUN} JOIN artifact ON artifact.run_id = run.id",
    ),
    # Text of files of users' own code, without secrets.
    "v_sources": View(
        {"sha256": "SHA-256 of the file", "text": "its text; lines with secrets are left out"},
        "SELECT {columns} FROM source",
    ),
    # Differences between the runs of studies that somebody says do not matter.
    "v_acceptances": View(
        {
            "member.experiment": "name of the study",
            "acceptance.accepted": "what differs → values that count as equal, JSON",
            "acceptance.reason": "why the difference does not matter",
            "acceptance.author": "who said so",
            "acceptance.created_at": "time, UTC",
        },
        "SELECT DISTINCT {columns} FROM acceptance JOIN member ON member.run_id = acceptance.run_id",
    ),
    # What studies claimed, and how they were to be judged, before their first run.
    "v_registrations": View(
        {
            "registration.experiment": "name of the study",
            "registration.content": "claims, family, seeds, metrics, score and runs, JSON",
            "registration.digest": "SHA-256 of the content",
            "registration.git_commit": "commit of jestlab's own checkout; NULL if it is installed otherwise",
            "registration.author": "who registered it",
            "registration.created_at": "time, UTC; of several the latest counts",
        },
        "SELECT {columns} FROM registration",
    ),
    # Runs whose results are retracted, or rest on those of such a run.
    "v_retractions": View(
        {
            **_OF_RUN,
            "retraction.reason": "why the results are wrong",
            "retraction.author": "who said so",
            "retraction.created_at": "time, UTC",
            "origin.fingerprint AS origin": "identity of the run that was retracted: this one, or one "
            "that it needs",
        },
        _RETRACTIONS,
    ),
    # Notes and tags, with what they are about.
    "v_notes": View(
        {
            "'note' AS kind": "note or tag",
            "COALESCE(note.experiment, member.experiment) AS experiment": "name of the study; NULL if no "
            "study has the run",
            "member.name AS run": "name of the run in the study; NULL if it is about the study",
            "member.label": "name of the run and its values on the axes",
            "run.seed": "replicate",
            "run.fingerprint": "identity of the run",
            "note.text": "text of the note, or name of the tag",
            "note.author": "author; NULL if unknown",
            "note.created_at": "time, UTC",
        },
        f"""
    SELECT {{columns}} FROM note{_SUBJECT.format(table="note")}
    UNION ALL
    SELECT 'tag' AS kind, COALESCE(tag.experiment, member.experiment) AS experiment, member.name AS run,
        member.label AS label, run.seed AS seed, run.fingerprint AS fingerprint, tag.name AS text,
        tag.author AS author, tag.created_at AS created_at
    FROM tag{_SUBJECT.format(table="tag")}""",
    ),
    # Every cell of every published table that was imported.
    "v_published": View(
        {
            "source": "publication",
            "table_name": "table in the publication",
            "position": "row in the table, from 1",
            "group_name": "rows that are compared with one baseline; empty without groups",
            "method": "what was trained",
            "variant": "variant of the method, such as B or L",
            "data": "training data",
            "citation": "citation of the method in words; empty for the publication's own",
            "citation_key": "its BibTeX key",
            "ours": "1 if the publication marks the row as its authors' own, else 0",
            "baseline": "1 if the row is the baseline of its group, else 0",
            "accounting": "formula of its FLOPs per iteration: iid, jest, flexi; empty if there is none",
            "quantity": "what the cell holds: examples_seen, flops_total, mean, imagenet/zero_shot, …",
            "printed": "text exactly as printed",
            "value": "the text as a number: a share of 1 for percent and shares, a count, 1 or 0",
            "unit": "unit of the printed text: percent, share, count or flag",
            "bold": "1 if it is printed bold, else 0",
            "note": "what to know before comparing it with others",
            "updated_at": "time at which it was imported as it is, UTC",
        },
        "SELECT {columns} FROM published",
    ),
}
