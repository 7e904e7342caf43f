"""The store's views, the stable interface for reading results, in SQL that both databases understand.

Views hold no data: a new definition needs no new schema, only `jestlab db upgrade`.
"""

import re
from dataclasses import dataclass
from functools import cached_property

# A time in microseconds: an integer, so that both databases give the same durations. In SQLite, times are
# text: YYYY-MM-DD HH:MM:SS.ffffff.
_MICROSECONDS = {
    "sqlite": r"(strftime('%s', \1) * 1000000 + substr(\1, 21))",
    "postgresql": r"(EXTRACT(EPOCH FROM \1) * 1000000)",
}


@dataclass(frozen=True)
class ViewDefinition:
    """A view: its SELECT, with a comment about the view before it and about each column after its name.

    `MICROSECONDS(time)` differs between the databases.
    """

    sql: str

    @property
    def about(self) -> str:
        """Description of the view."""
        return self.sql.partition("-- ")[2].partition("\n")[0]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Column → description, in order."""
        return dict(re.findall(r"(\w+),? -- (.*)", self.sql))

    def definition(self, dialect: str) -> str:
        """Return the SELECT for `sqlite` or `postgresql`."""
        sql = re.sub(r" -- .*", "", self.sql)
        return re.sub(r"MICROSECONDS\(([\w.]+)\)", _MICROSECONDS[dialect], sql).strip()


_RUN = """
        member.experiment, -- name of the study
        member.name AS run, -- name of the run in the study
        member.label, -- name of the run and its values on the axes
        run.seed, -- replicate
        run.fingerprint, -- identity of the run"""

FIRST_STEP = """
        CASE WHEN attempt.resumed_step = 0 THEN 0
            WHEN EXISTS (SELECT 1 FROM evaluation WHERE evaluation.run_id = attempt.run_id
                AND evaluation.attempt < attempt.number
                AND evaluation.step BETWEEN 1 AND attempt.resumed_step)
            THEN attempt.resumed_step ELSE attempt.first_step END"""
"""The step from which an attempt resumed: it did if earlier scores count, even without reported progress."""

_FROM_RUN = """
    FROM run
    JOIN member ON member.run_id = run.id"""

_REPORTED_FLOPS = """
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
                WHERE evaluation.run_id = run.id AND evaluation.flops_total IS NOT NULL
                ORDER BY evaluation.step DESC LIMIT 1
            ) AS evaluated
        ) AS last ORDER BY last.step DESC LIMIT 1)"""
"""The FLOPs that a run has reported so far; NULL if none."""

_POINTS = " FROM metric WHERE metric.run_id = run.id AND metric.name_id = metric_name.id"

VIEWS: dict[str, ViewDefinition] = {
    "v_experiments": ViewDefinition("""
    -- One row for each study, as of its last launch
    SELECT
        name AS experiment, -- name of the study
        question, -- question of the study
        paper, -- figure or table of the paper that it reproduces
        scale, -- scale of the last launch
        spec, -- resolved spec, JSON; launching it launches the same runs
        created_at, -- time of the first launch, UTC
        updated_at, -- time of the last launch, UTC
        origin, -- archive that it was imported from, JSON; NULL if it was launched here
        owner, -- user who launched it last; NULL if unknown
        host -- machine that it was last launched from; NULL if unknown
    FROM experiment"""),
    "v_runs": ViewDefinition(f"""
    -- One row for each run of each study
    SELECT
        member.experiment, -- name of the study
        experiment.question, -- question of the study
        member.name AS run, -- name of the run in the study
        member.label, -- name of the run and its values on the axes
        run.seed, -- replicate
        member.position, -- order in the study
        run.fingerprint, -- identity of the run
        run.id AS run_id, -- number of the run, the same in every store
        run.program, -- program of the run
        run.state, -- PENDING, BLOCKED, RUNNING, COMPLETED, FAILED, CANCELLED, PREEMPTED or SKIPPED
        run.reason, -- reason for the state, if the run did not complete
        run.step, -- completed steps
        run.total_steps, -- total number of steps
        member.point, -- values on the axes, JSON
        run.config, -- resolved config, JSON
        run.directory, -- folder of the run, relative to the lab's root
        COALESCE(latest.number, 0) AS attempts, -- number of attempts
        latest.started_at, -- start of the last attempt, UTC
        latest.ended_at, -- end of the last attempt, UTC
        experiment.scale, -- scale of the study's last launch
        member.needed -- 1 if other runs of the study, except diagnoses, refer to this name, else 0{_FROM_RUN}
    JOIN experiment ON experiment.name = member.experiment
    LEFT JOIN attempt AS latest ON latest.run_id = run.id
        AND latest.number = (SELECT MAX(number) FROM attempt WHERE attempt.run_id = run.id)"""),
    "v_metrics": ViewDefinition(f"""
    -- Every metric of every run at every step
    SELECT{_RUN}
        metric_name.name, -- metric
        metric.step, -- step
        metric.value -- value; NULL for NaN{_FROM_RUN}
    JOIN metric ON metric.run_id = run.id
    JOIN metric_name ON metric_name.id = metric.name_id"""),
    # The CROSS JOIN fixes the order for SQLite. PostgreSQL would read all points for EXISTS.
    "v_latest": ViewDefinition(f"""
    -- The last value of every metric of every run, by lookups at the end of each curve
    SELECT{_RUN}
        metric_name.name, -- metric
        (SELECT MAX(metric.step){_POINTS}) AS step, -- last step of the metric
        (SELECT metric.value{_POINTS}
            ORDER BY metric.step DESC LIMIT 1) AS value -- value; NULL for NaN{_FROM_RUN}
    CROSS JOIN metric_name
    WHERE (SELECT MAX(metric.step){_POINTS}) IS NOT NULL"""),
    "v_evaluations": ViewDefinition(f"""
    -- Every score of every run, during and after training
    SELECT{_RUN}
        run.id AS run_id, -- number of the run, the same in every store
        evaluation.dataset, -- dataset
        evaluation.metric, -- metric
        evaluation.dataset || '/' || evaluation.metric AS name, -- dataset/metric
        evaluation.step, -- step
        evaluation.value, -- score; NULL for NaN
        evaluation.examples_seen, -- examples that the learner had seen; NULL if unknown
        evaluation.flops_total, -- FLOPs of learner, scoring, and selection so far; NULL if unknown
        evaluation.seconds, -- seconds of training so far; NULL if unknown
        evaluation.seconds / 3600 * (SELECT CASE WHEN attempt.chips > 0 THEN attempt.chips ELSE 1 END
            FROM attempt WHERE attempt.run_id = run.id AND attempt.number = evaluation.attempt)
            AS chip_hours, -- chips × hours of training so far; hours without chips; NULL if unknown
        CASE WHEN run.state = 'COMPLETED'
            AND evaluation.step = (SELECT MAX(step) FROM evaluation AS others WHERE others.run_id = run.id)
            THEN 1 ELSE 0 END AS final -- 1 at the last step of a completed run, else 0{_FROM_RUN}
    JOIN evaluation ON evaluation.run_id = run.id"""),
    # The cost of each dependency, direct or indirect, is planned, or else reported. The cost is divided by
    # the number of training runs that depend on it. For example, a run that uses a cache of embeddings
    # shares the costs of the cache and its reference.
    "v_costs": ViewDefinition(f"""
    -- Planned and actual cost of every run; NULL if unknown
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
        SELECT chain.needs_id AS run_id, SUM(CASE WHEN planned.learner = 0 THEN 0 ELSE 1 END) AS runs
        FROM chain LEFT JOIN planned ON planned.run_id = chain.run_id
        GROUP BY chain.needs_id
    ), made AS (
        SELECT run.id AS run_id, sharing.runs, COALESCE(planned.executed, {_REPORTED_FLOPS}) AS flops
        FROM run JOIN sharing ON sharing.run_id = run.id LEFT JOIN planned ON planned.run_id = run.id
    ), needed AS (
        SELECT chain.run_id AS run_id, MIN(made.runs) AS shared_by, COUNT(*) - COUNT(made.flops) AS unknown,
            SUM(made.flops) AS flops, SUM(made.flops / CASE WHEN made.runs > 0 THEN made.runs END) AS share
        FROM chain JOIN made ON made.run_id = chain.needs_id
        GROUP BY chain.run_id
    ), held AS (
        SELECT run_id, CASE WHEN chips > 0 THEN chips ELSE 1 END AS chips, started_at,
            COALESCE(ended_at, heartbeat_at) AS last_at
        FROM attempt WHERE started_at IS NOT NULL
    ), occupied AS (
        SELECT run_id,
            CAST(SUM(MICROSECONDS(last_at) - MICROSECONDS(started_at)) AS double precision) / 3.6e9 AS hours,
            CAST(SUM((MICROSECONDS(last_at) - MICROSECONDS(started_at)) * chips) AS double precision) / 3.6e9
                AS chip_hours
        FROM held GROUP BY run_id
    )
    SELECT{_RUN}
        planned.image_tower AS image_tower_flops, -- planned: training the image tower; NULL if adopted
        planned.text_tower AS text_tower_flops, -- planned: training the text tower; NULL if adopted
        planned.loss AS loss_flops, -- planned: loss, forward and backward; NULL if adopted
        planned.learner AS learner_flops, -- planned: training the learner, towers and loss
        planned.scoring AS scoring_flops, -- planned: the learner's scoring of super-batches
        planned.selection AS selection_flops, -- planned: selecting sub-batches; NULL if adopted
        planned.reference_scoring AS reference_scoring_flops, -- planned: the reference's; 0 if cached
        planned.learner + planned.scoring + COALESCE(planned.selection, 0.0)
            AS total_flops, -- planned: learner, scoring, and selection
        CASE WHEN needed.run_id IS NULL THEN 0.0 WHEN needed.unknown = 0 THEN needed.flops END
            AS reference_training_flops, -- FLOPs of all direct and indirect dependencies; NULL if unknown
        needed.shared_by
            AS reference_shared_by, -- the smallest number of training runs that share a dependency
        CASE WHEN needed.run_id IS NULL OR planned.learner = 0 THEN 0.0
            WHEN needed.unknown = 0 THEN needed.share END
            AS reference_training_share_flops, -- FLOPs of each dependency, divided by the runs that share it
        budget.chip, -- planned: type of chip: v5e, v6e, …; gpu; local: chips are not counted
        budget.chips, -- planned: number of chips
        budget.chip_hours AS planned_chip_hours, -- planned: chips × hours
        budget.dollars AS planned_dollars, -- planned: chip-hours × price
{_REPORTED_FLOPS}
            AS actual_flops, -- learner, scoring, and selection so far; repeated steps count once
        occupied.hours AS actual_hours, -- hours of all attempts so far
        occupied.chip_hours AS actual_chip_hours -- chips × hours so far; hours without chips{_FROM_RUN}
    LEFT JOIN planned ON planned.run_id = run.id
    LEFT JOIN needed ON needed.run_id = run.id
    LEFT JOIN budget ON budget.run_id = run.id
    LEFT JOIN occupied ON occupied.run_id = run.id"""),
    # Adopted runs are left out: their phases are unknown.
    "v_goodput": ViewDefinition(f"""
    -- How the time of every attempt was spent, as measured by its worker; NULL if unknown
    WITH timed AS (
        SELECT id, COALESCE(ended_at, heartbeat_at) AS last_at,
            COALESCE(started_at, ended_at, heartbeat_at) AS waited_until
        FROM attempt
    )
    SELECT{_RUN}
        attempt.number, -- 1, 2, … within the run
        attempt.state, -- PENDING until the worker starts, then RUNNING, then the final state
        attempt.chips, -- number of accelerator chips that it occupies; 0 without chips
        CAST(MICROSECONDS(timed.waited_until) - MICROSECONDS(attempt.claimed_at) AS double precision) / 1e6
            AS queue_seconds, -- from the claim until the worker started; not included in held_seconds
        CAST(MICROSECONDS(timed.last_at) - MICROSECONDS(attempt.started_at) AS double precision) / 1e6
            AS held_seconds, -- from the start of the worker's process until its end or last heartbeat
        attempt.startup_seconds, -- until the first step, without compilation
        attempt.compilation_seconds, -- tracing, lowering, compiling, loading compiled programs
        attempt.training_seconds, -- training, including steps that were later repeated
        attempt.evaluation_seconds, -- evaluation
        attempt.checkpoint_seconds, -- waiting for checkpoints
        attempt.winddown_seconds, -- after the end of the program; NULL before
        attempt.resumed_step, -- completed steps when it started or resumed
        attempt.reached_step, -- completed steps at its last report
        attempt.saved_step, -- steps in its last complete checkpoint; NULL before the first
        attempt.saved_seconds -- seconds of training and evaluation until that checkpoint{_FROM_RUN}
    JOIN attempt ON attempt.run_id = run.id
    JOIN timed ON timed.id = attempt.id
    WHERE attempt.executor <> 'adopted'"""),
    "v_attempts": ViewDefinition(f"""
    -- Every attempt at every run
    SELECT{_RUN}
        attempt.number, -- 1, 2, … within the run
        attempt.state, -- PENDING until the worker starts, then RUNNING, then the final state
        attempt.reason, -- reason for the state, if the attempt did not complete
        attempt.executor, -- executor that launched it: local, vertex, kubernetes or slurm; or adopted
        attempt.handle, -- the executor's name of the job; for an adopted run, its source
        attempt.chips, -- number of accelerator chips that it occupies
        attempt.lease_seconds, -- silence after which the worker counts as lost{FIRST_STEP}
            AS first_step, -- step of the run when the attempt started; 0: it started over
        attempt.claimed_at, -- time at which a launcher claimed the run, UTC
        attempt.started_at, -- time at which the worker started, UTC
        attempt.heartbeat_at, -- time of the last heartbeat, UTC
        attempt.ended_at, -- time at which it ended, UTC
        attempt.exit_code, -- exit code of the process; −n if signal n ended it
        attempt.host, -- host name of the machine
        attempt.pid, -- process id on that machine
        attempt.device, -- processor or accelerator, in words
        attempt.log, -- log file, relative to the lab's root
        attempt.git_commit, -- commit of jestlab's own checkout; NULL if jestlab is installed otherwise
        attempt.git_patch, -- uncommitted changes of jestlab's own checkout
        attempt.code_commit, -- commit of the repository of the user's code; NULL without one
        attempt.code_patch, -- uncommitted changes of the user's repository
        attempt.sources, -- file of the user's code → SHA-256, JSON; NULL: unknown, or no such code
        attempt.inputs, -- file or folder that the spec's `record` names → SHA-256, JSON
        attempt.versions, -- package → version, JSON
        attempt.environment, -- environment variables that may matter, JSON
        (SELECT lab.address FROM lab WHERE lab.uid = attempt.lab)
            AS lab -- last known folder or bucket of the lab with its files; NULL if unknown{_FROM_RUN}
    JOIN attempt ON attempt.run_id = run.id"""),
    "v_artifacts": ViewDefinition(f"""
    -- Files and folders that runs recorded
    SELECT{_RUN}
        artifact.name, -- name of the artifact
        artifact.uri, -- path, relative to the lab's root
        artifact.size, -- bytes
        artifact.sha256 -- digest of the content{_FROM_RUN}
    JOIN artifact ON artifact.run_id = run.id"""),
    "v_sources": ViewDefinition("""
    -- Text of files of the user's code, without secrets
    SELECT
        sha256, -- SHA-256 of the file
        text -- its text; lines with secrets are left out
    FROM source"""),
    "v_acceptances": ViewDefinition("""
    -- Accepted differences between the runs of studies
    SELECT DISTINCT
        member.experiment, -- name of the study
        acceptance.accepted, -- item that differs → values that count as equal, JSON
        acceptance.reason, -- why the difference does not matter
        acceptance.author, -- author
        acceptance.created_at -- time, UTC
    FROM acceptance JOIN member ON member.run_id = acceptance.run_id"""),
    "v_registrations": ViewDefinition("""
    -- Claims that were registered before the first run of a study
    SELECT
        experiment, -- name of the study
        content, -- claims, family, seeds, metrics, score and runs, JSON
        digest, -- SHA-256 of the content
        git_commit, -- commit of jestlab's own checkout; NULL if it is installed otherwise
        author, -- author
        created_at -- time, UTC; the latest registration counts
    FROM registration"""),
    # A retraction holds for a run until a later attempt completes it. It also holds for the runs that
    # depend on it if they were claimed before that attempt: a run is claimed after its dependencies have
    # completed.
    "v_retractions": ViewDefinition(f"""
    -- Runs with retracted results, and runs that depend on them
    WITH RECURSIVE retracted (origin_id, run_id) AS (
        SELECT retraction.run_id, retraction.run_id FROM retraction
        UNION
        SELECT retracted.origin_id, need.run_id FROM retracted JOIN need ON need.needs_id = retracted.run_id
    ), made AS (
        SELECT run_id, COALESCE(MAX(CASE WHEN state = 'COMPLETED' THEN claimed_at END), MAX(claimed_at))
            AS claimed_at
        FROM attempt GROUP BY run_id
    )
    SELECT{_RUN}
        retraction.reason, -- why the results are wrong
        retraction.author, -- author
        retraction.created_at, -- time, UTC
        origin.fingerprint AS origin -- the run that was retracted: this one, or one that it depends on
    FROM retracted
    JOIN retraction ON retraction.run_id = retracted.origin_id
    JOIN run AS origin ON origin.id = retraction.run_id
    JOIN made ON made.run_id = retracted.run_id
    JOIN run ON run.id = retracted.run_id
    JOIN member ON member.run_id = run.id
    WHERE NOT EXISTS (
        SELECT 1 FROM attempt WHERE attempt.run_id = retraction.run_id AND attempt.state = 'COMPLETED'
            AND attempt.number > retraction.number AND attempt.claimed_at <= made.claimed_at)"""),
    "v_notes": ViewDefinition("""
    -- Notes and tags
    SELECT
        note.kind, -- note or tag
        COALESCE(note.experiment, member.experiment)
            AS experiment, -- name of the study; NULL if no study has the run
        member.name AS run, -- name of the run in the study; NULL for a note about the study
        member.label, -- name of the run and its values on the axes
        run.seed, -- replicate
        run.fingerprint, -- identity of the run
        note.text, -- text of the note, or name of the tag
        note.author, -- author; NULL if unknown
        note.created_at -- time, UTC
    FROM (
        SELECT 'note' AS kind, experiment, run_id, text, author, created_at FROM note
        UNION ALL
        SELECT 'tag' AS kind, experiment, run_id, name AS text, author, created_at FROM tag) AS note
    LEFT JOIN run ON run.id = note.run_id
    LEFT JOIN member ON member.run_id = run.id"""),
    "v_published": ViewDefinition("""
    -- Every cell of every published table that was imported
    SELECT
        source, -- publication
        table_name, -- table in the publication
        position, -- row in the table, from 1
        group_name, -- rows that are compared with one baseline; empty without groups
        method, -- name of the method
        variant, -- variant of the method, such as B or L
        data, -- training data
        citation, -- citation of the method in words; empty for the publication's own
        citation_key, -- its BibTeX key
        ours, -- 1 if the publication marks the row as its authors' own, else 0
        baseline, -- 1 if the row is the baseline of its group, else 0
        accounting, -- formula of its FLOPs per iteration: iid, jest, flexi; can be empty
        quantity, -- quantity of the cell: examples_seen, flops_total, mean, imagenet/zero_shot, …
        printed, -- text exactly as printed
        value, -- the text as a number: a share of 1 for percent and shares, a count, 1 or 0
        unit, -- unit of the printed text: percent, share, count or flag
        bold, -- 1 if it is printed bold, else 0
        note, -- limits of comparing it with others
        updated_at -- time of its last change, UTC
    FROM published"""),
}
