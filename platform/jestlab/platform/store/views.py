"""The store's views, the stable interface for reading results, in SQL that both databases understand.

Views hold no data: a new definition needs no new schema, only `jestlab db upgrade`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jestlab.platform.store.view_queries import (
    ACTUAL_FLOPS,
    CHIP_HOURS,
    FINAL,
    FIRST_STEP,
    FROM_RUN,
    LATEST_POSTGRESQL,
    LATEST_SQLITE,
    MICROSECONDS_POSTGRESQL,
    MICROSECONDS_SQLITE,
    RETRACTIONS,
    SHARE_FLOPS,
    SUBJECT,
    TOTAL_FLOPS,
    costs,
    goodput,
)


@dataclass(frozen=True)
class ViewDefinition:
    """A view.

    Attributes:
        fields: SQL of each column → its description, in order. `table.name` is the column `name`; any other
            expression ends in `AS name`.
        body: Its definition, in which `{columns}` is replaced by the columns.
        on_postgresql: Its definition for PostgreSQL, if it differs.
    """

    fields: dict[str, str]
    body: str
    on_postgresql: str | None = None

    @cached_property
    def columns(self) -> dict[str, str]:
        """Column → description, in order."""
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

VIEWS: dict[str, ViewDefinition] = {
    # One row for each study, as of its last launch.
    "v_experiments": ViewDefinition(
        {
            "experiment.name AS experiment": "name of the study",
            "experiment.question": "question of the study",
            "experiment.paper": "figure or table of the paper that it reproduces",
            "experiment.scale": "scale of the last launch",
            "experiment.spec": "resolved spec, JSON; launching it launches the same runs",
            "experiment.created_at": "time of the first launch, UTC",
            "experiment.updated_at": "time of the last launch, UTC",
            "experiment.origin": "archive that it was imported from, JSON; NULL if it was launched here",
            "experiment.owner": "user who launched it last; NULL if unknown",
            "experiment.host": "machine that it was last launched from; NULL if unknown",
        },
        "SELECT {columns} FROM experiment",
    ),
    # One row for each run of each study.
    "v_runs": ViewDefinition(
        {
            "member.experiment": "name of the study",
            "experiment.question": "question of the study",
            "member.name AS run": "name of the run in the study",
            "member.label": "name of the run and its values on the axes",
            "run.seed": "replicate",
            "member.position": "order in the study",
            "run.fingerprint": "identity of the run",
            "run.id AS run_id": "number of the run, the same in every store",
            "run.program": "program of the run",
            "run.state": "PENDING, BLOCKED, RUNNING, COMPLETED, FAILED, CANCELLED, PREEMPTED or SKIPPED",
            "run.reason": "reason for the state, if the run did not complete",
            "run.step": "completed steps",
            "run.total_steps": "total number of steps",
            "member.point": "values on the axes, JSON",
            "run.config": "resolved config, JSON",
            "run.directory": "folder of the run, relative to the lab's root",
            "COALESCE(latest.number, 0) AS attempts": "number of attempts",
            "latest.started_at": "start of the last attempt, UTC",
            "latest.ended_at": "end of the last attempt, UTC",
            "experiment.scale": "scale of the study's last launch",
            "member.needed": "1 if other runs of the study, except diagnoses, refer to this name, else 0",
        },
        f"""{FROM_RUN}
    JOIN experiment ON experiment.name = member.experiment
    LEFT JOIN attempt AS latest ON latest.run_id = run.id
        AND latest.number = (SELECT MAX(number) FROM attempt WHERE attempt.run_id = run.id)""",
    ),
    # Every metric of every run at every step.
    "v_metrics": ViewDefinition(
        {
            **_OF_RUN,
            "metric_name.name": "metric",
            "metric.step": "step",
            "metric.value": "value; NULL for NaN",
        },
        f"""{FROM_RUN}
    JOIN metric ON metric.run_id = run.id
    JOIN metric_name ON metric_name.id = metric.name_id""",
    ),
    # The last value of every metric of every run.
    "v_latest": ViewDefinition(
        {
            **_OF_RUN,
            "metric_name.name": "metric",
            "metric.step": "last step of the metric",
            "metric.value": "value; NULL for NaN",
        },
        LATEST_SQLITE,
        LATEST_POSTGRESQL,
    ),
    # Every score of every run, during and after training.
    "v_evaluations": ViewDefinition(
        {
            **_OF_RUN,
            "run.id AS run_id": "number of the run, the same in every store",
            "evaluation.dataset": "dataset",
            "evaluation.metric": "metric",
            "evaluation.dataset || '/' || evaluation.metric AS name": "dataset/metric",
            "evaluation.step": "step",
            "evaluation.value": "score; NULL for NaN",
            "evaluation.examples_seen": "examples that the learner had seen; NULL if unknown",
            "evaluation.flops_total": "FLOPs of learner, scoring, and selection so far; NULL if unknown",
            "evaluation.seconds": "seconds of training so far; NULL if unknown",
            CHIP_HOURS: "chips × hours of training so far; hours without chips; NULL if unknown",
            FINAL: "1 at the last step of a completed run, else 0",
        },
        f"{FROM_RUN} JOIN evaluation ON evaluation.run_id = run.id",
    ),
    # Planned and actual cost of every run; NULL if unknown.
    "v_costs": ViewDefinition(
        {
            **_OF_RUN,
            "planned.image_tower AS image_tower_flops": "planned: training the image tower; NULL if adopted",
            "planned.text_tower AS text_tower_flops": "planned: training the text tower; NULL if adopted",
            "planned.loss AS loss_flops": "planned: loss, forward and backward; NULL if adopted",
            "planned.learner AS learner_flops": "planned: training the learner, towers and loss",
            "planned.scoring AS scoring_flops": "planned: the learner's scoring of super-batches",
            "planned.selection AS selection_flops": "planned: selecting sub-batches; NULL if adopted",
            "planned.reference_scoring AS reference_scoring_flops": "planned: the reference's; 0 if cached",
            TOTAL_FLOPS: "planned: learner, scoring, and selection",
            "COALESCE(needed.flops, 0.0) AS reference_training_flops": "planned: FLOPs of all direct "
            "and indirect dependencies, such as a reference's training and a cache of embeddings",
            "needed.shared_by AS reference_shared_by": "number of training runs that share a "
            "dependency; the smallest over all dependencies; NULL without dependencies",
            SHARE_FLOPS: "reference_training_flops, divided for each dependency by the number of training "
            "runs that share it; 0 for runs without training",
            "budget.chip": "planned: type of chip: v5e, v6e, …; gpu; local: chips are not counted",
            "budget.chips": "planned: number of chips",
            "budget.chip_hours AS planned_chip_hours": "planned: chips × hours",
            "budget.dollars AS planned_dollars": "planned: chip-hours × price",
            ACTUAL_FLOPS: "learner, scoring, and selection so far; repeated steps count once",
            "occupied.hours AS actual_hours": "hours of all attempts so far",
            "occupied.chip_hours AS actual_chip_hours": "chips × hours so far; hours without chips",
        },
        costs(MICROSECONDS_SQLITE),
        costs(MICROSECONDS_POSTGRESQL),
    ),
    # How the time of every attempt was spent, as measured by its worker; NULL if unknown.
    "v_goodput": ViewDefinition(
        {
            **_OF_RUN,
            "attempt.number": "1, 2, … within the run",
            "attempt.state": "PENDING until the worker starts, then RUNNING, then the final state",
            "attempt.chips": "number of accelerator chips that it occupies; 0 without chips",
            "timed.queue_seconds": "from the claim until the worker started; not included in held_seconds",
            "timed.held_seconds": "from the start of the worker's process until the end, or its last "
            "heartbeat; NULL before the start",
            "attempt.startup_seconds": "until the first step, without compilation",
            "attempt.compilation_seconds": "tracing, lowering, compiling, loading compiled programs",
            "attempt.training_seconds": "training, including steps that were later repeated",
            "attempt.evaluation_seconds": "evaluation",
            "attempt.checkpoint_seconds": "waiting for checkpoints",
            "attempt.winddown_seconds": "after the end of the program; NULL before",
            "attempt.resumed_step": "completed steps when it started or resumed",
            "attempt.reached_step": "completed steps at its last report",
            "attempt.saved_step": "steps in its last complete checkpoint; NULL before the first",
            "attempt.saved_seconds": "seconds of training and evaluation until that checkpoint",
        },
        goodput(MICROSECONDS_SQLITE),
        goodput(MICROSECONDS_POSTGRESQL),
    ),
    # Every attempt at every run.
    "v_attempts": ViewDefinition(
        {
            **_OF_RUN,
            "attempt.number": "1, 2, … within the run",
            "attempt.state": "PENDING until the worker starts, then RUNNING, then the final state",
            "attempt.reason": "reason for the state, if the attempt did not complete",
            "attempt.executor": "executor that launched it: local, vertex, kubernetes or slurm; or adopted",
            "attempt.handle": "the executor's name of the job; for an adopted run, its source",
            "attempt.chips": "number of accelerator chips that it occupies",
            "attempt.lease_seconds": "seconds without a heartbeat after which the worker counts as lost",
            f"{FIRST_STEP} AS first_step": "step of the run when the attempt started; 0: it started over",
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
            "attempt.code_commit": "commit of the repository of the user's code; NULL without one",
            "attempt.code_patch": "uncommitted changes of the user's repository",
            "attempt.sources": "file of the user's code → SHA-256, JSON; NULL: unknown, or no such code",
            "attempt.inputs": "file or folder that the spec's `record` names → SHA-256, JSON",
            "attempt.versions": "package → version, JSON",
            "attempt.environment": "environment variables that may matter, JSON",
            "(SELECT lab.address FROM lab WHERE lab.uid = attempt.lab) AS lab": "last known folder "
            "or bucket of the lab with its files; NULL if unknown",
        },
        f"{FROM_RUN} JOIN attempt ON attempt.run_id = run.id",
    ),
    # Files and folders that runs recorded.
    "v_artifacts": ViewDefinition(
        {
            **_OF_RUN,
            "artifact.name": "name of the artifact",
            "artifact.uri": "path, relative to the lab's root",
            "artifact.size": "bytes",
            "artifact.sha256": "digest of the content",
        },
        f"{FROM_RUN} JOIN artifact ON artifact.run_id = run.id",
    ),
    # Text of files of the user's code, without secrets.
    "v_sources": ViewDefinition(
        {"sha256": "SHA-256 of the file", "text": "its text; lines with secrets are left out"},
        "SELECT {columns} FROM source",
    ),
    # Accepted differences between the runs of studies.
    "v_acceptances": ViewDefinition(
        {
            "member.experiment": "name of the study",
            "acceptance.accepted": "item that differs → values that count as equal, JSON",
            "acceptance.reason": "why the difference does not matter",
            "acceptance.author": "author",
            "acceptance.created_at": "time, UTC",
        },
        "SELECT DISTINCT {columns} FROM acceptance JOIN member ON member.run_id = acceptance.run_id",
    ),
    # Claims that were registered before the first run of a study.
    "v_registrations": ViewDefinition(
        {
            "registration.experiment": "name of the study",
            "registration.content": "claims, family, seeds, metrics, score and runs, JSON",
            "registration.digest": "SHA-256 of the content",
            "registration.git_commit": "commit of jestlab's own checkout; NULL if it is installed otherwise",
            "registration.author": "author",
            "registration.created_at": "time, UTC; the latest registration counts",
        },
        "SELECT {columns} FROM registration",
    ),
    # Runs with retracted results, and runs that depend on them.
    "v_retractions": ViewDefinition(
        {
            **_OF_RUN,
            "retraction.reason": "why the results are wrong",
            "retraction.author": "author",
            "retraction.created_at": "time, UTC",
            "origin.fingerprint AS origin": "identity of the run that was retracted: this one, or one "
            "that it depends on",
        },
        RETRACTIONS,
    ),
    # Notes and tags.
    "v_notes": ViewDefinition(
        {
            "'note' AS kind": "note or tag",
            "COALESCE(note.experiment, member.experiment) AS experiment": "name of the study; NULL if no "
            "study has the run",
            "member.name AS run": "name of the run in the study; NULL for a note about the study",
            "member.label": "name of the run and its values on the axes",
            "run.seed": "replicate",
            "run.fingerprint": "identity of the run",
            "note.text": "text of the note, or name of the tag",
            "note.author": "author; NULL if unknown",
            "note.created_at": "time, UTC",
        },
        f"""
    SELECT {{columns}} FROM note{SUBJECT.format(table="note")}
    UNION ALL
    SELECT 'tag' AS kind, COALESCE(tag.experiment, member.experiment) AS experiment, member.name AS run,
        member.label AS label, run.seed AS seed, run.fingerprint AS fingerprint, tag.name AS text,
        tag.author AS author, tag.created_at AS created_at
    FROM tag{SUBJECT.format(table="tag")}""",
    ),
    # Every cell of every published table that was imported.
    "v_published": ViewDefinition(
        {
            "source": "publication",
            "table_name": "table in the publication",
            "position": "row in the table, from 1",
            "group_name": "rows that are compared with one baseline; empty without groups",
            "method": "name of the method",
            "variant": "variant of the method, such as B or L",
            "data": "training data",
            "citation": "citation of the method in words; empty for the publication's own",
            "citation_key": "its BibTeX key",
            "ours": "1 if the publication marks the row as its authors' own, else 0",
            "baseline": "1 if the row is the baseline of its group, else 0",
            "accounting": "formula of its FLOPs per iteration: iid, jest, flexi; can be empty",
            "quantity": "quantity of the cell: examples_seen, flops_total, mean, imagenet/zero_shot, …",
            "printed": "text exactly as printed",
            "value": "the text as a number: a share of 1 for percent and shares, a count, 1 or 0",
            "unit": "unit of the printed text: percent, share, count or flag",
            "bold": "1 if it is printed bold, else 0",
            "note": "limits of comparing it with others",
            "updated_at": "time of its last change, UTC",
        },
        "SELECT {columns} FROM published",
    ),
}
