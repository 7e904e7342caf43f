"""Check that an executor and the programs of a study can use its resources."""

from jestlab.platform import programs
from jestlab.platform.dependencies import EXECUTORS
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Plan
from jestlab.platform.programs.command import COMMAND
from jestlab.platform.spec.resources import ExecutorName, attribute


def check_resources(plan: Plan, on: ExecutorName | None) -> None:
    """Check that the runs of a plan can use the resources of its study.

    Args:
        plan: The plan.
        on: Executor of the runs; None if each run needs a TPU slice and no executor is named.

    Raises:
        UserError: The executor or a program can't use them. The message has the remedy.
    """
    resources, names = plan.study.resources, {run.program for run in plan.runs}
    if on in EXECUTORS:
        if problem := resources.unsuitable_for(on):
            other = ", or give --on with another executor" if on != resources.on else ""
            raise UserError(f"resources: {problem}{other}")
    elif on is not None and resources.nodes > 1 and not attribute(on, "supports_nodes"):
        raise UserError(
            f"resources: {on} supports only one machine per run: leave out `nodes`, or set "
            "`supports_nodes = True` in its class (see jestlab.platform.launch.executors.base.Executor)"
        )
    if on == "vertex" and COMMAND.name in names and resources.machines.hosts > 1:
        raise UserError(
            f"resources: vertex runs commands on one machine, not on the {resources.machines.hosts} of "
            f"{resources.tpu}: use a smaller slice, or `on: kubernetes`"
        )
    if resources.nodes > 1 and names and not any(programs.get(name).collective for name in names):
        raise UserError(
            f"resources: {', '.join(sorted(names))} uses only one machine per run: leave out `nodes`"
        )
    if resources.tasks_per_node > 1 and (others := sorted(names - {COMMAND.name})):
        raise UserError(
            f"resources: `tasks_per_node` is for `program: command`, not for {others[0]}: leave it out"
        )
