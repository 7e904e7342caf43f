"""The first schema: experiments, runs, attempts, metrics, evaluations, costs, artifacts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_STATES = (
    "state IN ('PENDING', 'BLOCKED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'PREEMPTED', 'SKIPPED')"
)


def _run_id() -> sa.Column[int]:
    return sa.Column("run_id", sa.Integer, nullable=False)


def _of_run(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=f"fk_{table}_run_id_run", ondelete="CASCADE")


def _of_attempt(table: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_attempt_id_attempt"
    return sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "experiment",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("paper", sa.Text),
        sa.Column("scale", sa.Text),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("updated_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_experiment"),
        sa.UniqueConstraint("name", name="uq_experiment_name"),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("total_steps", sa.Integer),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("updated_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("fingerprint", name="uq_run_fingerprint"),
        sa.UniqueConstraint("directory", name="uq_run_directory"),
        sa.CheckConstraint(_STATES, name=op.f("ck_run_state")),
    )
    op.create_table(
        "member",
        sa.Column("experiment_id", sa.Integer, nullable=False),
        _run_id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("point", sa.Text, nullable=False),
        sa.Column("needed", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "run_id", "label", name="pk_member"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name="fk_member_experiment_id_experiment",
            ondelete="CASCADE",
        ),
        _of_run("member"),
    )
    op.create_index("ix_member_run_id", "member", ["run_id"])
    op.create_table(
        "need",
        _run_id(),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("needs_id", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "role", name="pk_need"),
        _of_run("need"),
        sa.ForeignKeyConstraint(["needs_id"], ["run.id"], name="fk_need_needs_id_run", ondelete="CASCADE"),
    )
    op.create_index("ix_need_needs_id", "need", ["needs_id"])
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer, nullable=False),
        _run_id(),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("heartbeat_at", sa.DateTime, nullable=False),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("git_commit", sa.Text),
        sa.Column("git_patch", sa.Text),
        sa.Column("versions", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
        sa.UniqueConstraint("run_id", "number", name="uq_attempt_run_id_number"),
        sa.CheckConstraint(_STATES, name=op.f("ck_attempt_state")),
        _of_run("attempt"),
    )
    op.create_table(
        "metric_name",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metric_name"),
        sa.UniqueConstraint("name", name="uq_metric_name_name"),
    )
    op.create_table(
        "metric",
        _run_id(),
        sa.Column("name_id", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("attempt_id", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name_id", "step", name="pk_metric"),
        _of_run("metric"),
        sa.ForeignKeyConstraint(["name_id"], ["metric_name.id"], name="fk_metric_name_id_metric_name"),
        _of_attempt("metric"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "evaluation",
        _run_id(),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("examples_seen", sa.BigInteger, nullable=False),
        sa.Column("flops_total", sa.Double, nullable=False),
        sa.Column("attempt_id", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "dataset", "metric", "step", name="pk_evaluation"),
        _of_run("evaluation"),
        _of_attempt("evaluation"),
    )
    op.create_index("ix_evaluation_run_id_step", "evaluation", ["run_id", "step"])
    op.create_table(
        "cost",
        _run_id(),
        sa.Column("component", sa.Text, nullable=False),
        sa.Column("flops", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "component", name="pk_cost"),
        _of_run("cost"),
    )
    op.create_table(
        "artifact",
        _run_id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_artifact"),
        _of_run("artifact"),
    )


def downgrade() -> None:
    """Drop every table."""
    for table in (
        "artifact",
        "cost",
        "evaluation",
        "metric",
        "metric_name",
        "attempt",
        "need",
        "member",
        "run",
        "experiment",
    ):
        op.drop_table(table)
