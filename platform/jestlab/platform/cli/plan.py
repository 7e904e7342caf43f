"""`jestlab plan`: what a launch would run, and what it costs."""

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
from jestlab.platform.spec.schema import Study


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
def plan_command(study: Study, why: bool, every: bool, as_json: bool, lab: Lab) -> None:
    """Show what launching SPEC would run, what it costs, and what is done. Writes nothing.

    Costs are in FLOPs; for a study on TPUs also in chip-hours, and in dollars if your settings hold prices;
    elsewhere in hours, or chip-hours of GPUs, once runs of the same program have completed there. Memory is
    estimated, and a run that will not fit is named.
    """
    found = survey(lab, study, why=why)
    data = show_plan.as_data(found.plan, found.reasons) | {"remarks": list(found.remarks)}
    show(as_json, data, [*show_plan.blocks(found, every), *found.remarks])
