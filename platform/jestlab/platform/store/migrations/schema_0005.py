"""Code has an identity, results can be retracted, experiments say whose they are, the unknown is NULL."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add columns and tables. What attempts of older code ran of the user's own stays unknown."""
    for name in ("owner", "host"):
        op.add_column("experiment", sa.Column(name, sa.Text(), nullable=True))
    for name in ("code_commit", "code_patch", "sources", "inputs"):
        op.add_column("attempt", sa.Column(name, sa.Text(), nullable=True))
    with op.batch_alter_table("evaluation") as evaluation:
        evaluation.alter_column("examples_seen", existing_type=sa.BigInteger(), nullable=True)
        evaluation.alter_column("flops_total", existing_type=sa.Double(), nullable=True)
        evaluation.add_column(sa.Column("seconds", sa.Double(), nullable=True))
    op.create_table(
        "source",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_source")),
    )
    op.create_table(
        "acceptance",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_acceptance_experiment_id_experiment"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acceptance")),
    )
    op.create_table(
        "retraction",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_retraction_run_id_run"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retraction")),
    )
    op.create_index(op.f("ix_retraction_run_id"), "retraction", ["run_id"], unique=False)
