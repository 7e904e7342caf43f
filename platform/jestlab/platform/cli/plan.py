"""`jestlab plan`: preview a launch and its cost."""

from __future__ import annotations

import click

from jestlab.platform.cli.options import (
    decide_option,
    examples,
    json_option,
    lab_options,
    spec_options,
    wide_option,
)
from jestlab.platform.cli.output import show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning import show as show_plan
from jestlab.platform.planning.survey import survey
from jestlab.platform.spec.schema import StudySpec


@click.command(
    epilog=examples(
        "plan quickstart", "plan quickstart --set runs.joint.selection.filtering_ratio=0.9 --why"
    ),
)
@spec_options
@decide_option
@click.option("--why", is_flag=True, help="Explain for each run why it would run.")
@click.option("--all", "every", is_flag=True, help="Print a row for each run.")
@wide_option
@json_option()
@lab_options
def plan_command(study: StudySpec, why: bool, every: bool, as_json: bool, lab: Lab) -> None:
    """Show the runs of SPEC, their costs, and which are completed. Writes nothing.

    Costs are in FLOPs. For a study on TPUs they are also in chip-hours, and in dollars if your settings have
    prices. On other machines they are in hours, or chip-hours of GPUs, once runs of the same program have
    completed there. Memory is estimated, and runs that won't fit are listed.
    """
    preview = survey(lab, study, why=why)
    data = show_plan.as_data(preview.plan, preview.reasons) | {"remarks": list(preview.remarks)}
    show(as_json, data, [*show_plan.blocks(preview, every), *preview.remarks])
