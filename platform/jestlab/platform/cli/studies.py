"""`jestlab list`, `show`, `plan`, `register`, and `costs`: inspect and register studies before a launch."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from jestlab.analysis import units
from jestlab.analysis.costs import CONVENTIONS, EXECUTED
from jestlab.platform.cli.options import (
    FOLDER,
    decide_option,
    examples,
    json_option,
    lab_json_options,
    model_flags,
    spec_options,
)
from jestlab.platform.cli.output import print_or_write, show, writing
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.cost import CostBreakdown, LabelCost, cost_breakdown
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.planning.show import absent_data
from jestlab.platform.planning.show import as_data as plan_data
from jestlab.platform.planning.show import blocks as plan_blocks
from jestlab.platform.planning.survey import survey
from jestlab.platform.render import Block, TextColumn, table, table_of
from jestlab.platform.spec.load import load
from jestlab.platform.spec.options import CostOptions
from jestlab.platform.spec.resources import LOCAL_PARALLEL
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.study_registry import scales_of, study_module, study_names
from jestlab.platform.whoami import person
from jestlab.platform.words import counted

_PARTS = ("image", "text", "loss", "scoring", "selection", "ref. scoring")
_IMPORTANCE = {
    **dict.fromkeys(_PARTS, 50),
    "loss": 30,
    "selection": 35,
    "ref. scoring": 40,
    "FLOPs": 60,
    "equal budget": 70,
}


@click.command(epilog=examples("list"))
@lab_json_options()
def list_command(as_json: bool, lab: Lab) -> None:
    """List the studies that can be launched by name, with tags and the number of runs at each scale."""
    from jestlab.platform.store.annotations import all_tags
    from jestlab.platform.store.store import Store

    store, data = Store.open_readonly(lab.store_url), []
    tags = all_tags(store) if store else {}
    for name in study_names():
        scales = {scale: load(name, scale) for scale in scales_of(study_module(name), name)}
        study = next(iter(scales.values()))
        about = {"name": study.name, "question": study.question, "paper": study.paper}
        runs = {scale: len(_plan_for_display(at_scale).runs) for scale, at_scale in scales.items()}
        data.append({**about, "runs": runs, "studies": list(study.studies), "tags": tags.get(name, [])})
    tagged = TextColumn("tags", lambda about: ", ".join(about["tags"]), 60)
    columns = [*_STUDY_COLUMNS, tagged] if any(about["tags"] for about in data) else _STUDY_COLUMNS
    show(as_json, data, table_of(data, columns))


_STUDY_COLUMNS = (
    TextColumn("study", lambda about: about["name"]),
    TextColumn(
        "runs", lambda about: " ".join(f"{scale}:{count}" for scale, count in about["runs"].items()), 40
    ),
    TextColumn("paper", lambda about: about["paper"] or "–", 30),
    TextColumn("question", lambda about: _union_prefix(about["studies"]) + about["question"]),
)


def _union_prefix(studies: Sequence[str]) -> str:
    return f"union of {counted(len(studies), 'study')}: " if studies else ""


def _plan_for_display(study: StudySpec) -> Plan:
    """Plan a study for display: its data may be missing, and its executor isn't checked."""
    return plan(study, note_absent=True, placement="none")


@click.command(epilog=examples("show quickstart", "show quickstart --set seeds=5 --yaml > five_seeds.yaml"))
@spec_options
@click.option("--yaml", "as_yaml", is_flag=True, help="Print only the resolved spec, as YAML.")
@json_option("Print the resolved spec as JSON.")
def show_command(study: StudySpec, as_yaml: bool, as_json: bool) -> None:
    """Show SPEC with all values resolved, and its number of runs; for a union, list its studies.

    SPEC is a name from `jestlab list`, or a .py or .yaml file. The resolved spec defines the same runs.
    """
    if as_yaml and as_json:
        raise click.UsageError("--yaml and --json: expected only one of them")
    if as_yaml:
        print_or_write(None, study.to_yaml())
    else:
        show(as_json, study.to_dict(), _description(study))


def _description(study: StudySpec) -> Iterator[Block]:
    planned, resources = _plan_for_display(study), study.resources
    if study.studies:
        claims = counted(sum(len(part.claims) for part in study.studies.values()), "claim")
        yield f"{study.name}: {_union_prefix(list(study.studies))}{claims}"
        parts = study.studies.items()
        yield table(
            ("", "", ""), [(name, part.paper or "–", part.question) for name, part in parts], indent=2
        )
    else:
        yield study.to_yaml()
    parallel = resources.parallel or (LOCAL_PARALLEL if resources.tpu is None else None)
    at_a_time = f", {parallel} at a time" if parallel else ""
    yield (
        counted(len(planned.runs), "run")
        + at_a_time
        + (f", each on {resources.tpu}" if resources.tpu else "")
    )
    yield from absent_data(planned)


# ---- plan


@click.command(
    epilog=examples(
        "plan quickstart", "plan quickstart --set runs.joint.selection.filtering_ratio=0.9 --why"
    ),
)
@spec_options
@decide_option
@click.option("--why", is_flag=True, help="Explain why each run would run.")
@click.option("--all", "every", is_flag=True, help="Print one row per run, without grouping.")
@lab_json_options()
def plan_command(study: StudySpec, why: bool, every: bool, as_json: bool, lab: Lab) -> None:
    """Show the runs of SPEC, their costs, and which are completed. Writes nothing.

    Costs are in FLOPs. For TPUs they are also in chip-hours, and in dollars if your settings have prices. For
    other machines they are also in hours (GPUs on a cluster: chip-hours), once runs of the same program have
    completed there. Runs whose estimated memory exceeds the device's are listed.
    """
    preview = survey(lab, study, why=why)
    show(as_json, plan_data(preview), plan_blocks(preview, every))


# ---- register


@click.command(epilog=examples("register my_study.yaml --decide", "register paper --decide"))
@spec_options
@decide_option
@click.option(
    "--author",
    metavar="NAME",
    help="Author of the registration.  [default: git's user.name, else your login]",
)
@lab_json_options("Print the registration as JSON.")
def register_command(study: StudySpec, author: str | None, *, as_json: bool, lab: Lab) -> None:
    """Register the claims, error rate, seeds, metrics, score, and runs of SPEC before its first run.

    Tables and pages show the time of the registration, and mark claims as exploratory if
    the study was changed later. Launch the study with the same `--decide`, `--scale`, and `--set`. Until its
    first run starts, a study can be registered again.
    """
    from jestlab.analysis.claims.registration import digest_of
    from jestlab.analysis.provenance.checkout import Checkout
    from jestlab.platform.launch.options import LaunchOptions
    from jestlab.platform.launch.session import plan_study
    from jestlab.platform.planning import deciding
    from jestlab.platform.store.annotations import register
    from jestlab.platform.store.store import Store

    claims = sum(len(part.claims) for part in (study, *study.studies.values()))
    if not claims:
        raise UserError(f"{study.name} has no claims: write `claims` in its spec")
    plan = plan_study(lab, study, LaunchOptions())
    checkout = Checkout.of(Path(__file__))
    commit = None if checkout is None else checkout.commit
    content = deciding.registered_content(plan)
    with closing(Store.open(lab.store_url)) as store:
        author = author or person()
        new = register(store, study.name, content, plan.fingerprints, author=author, commit=commit)
        store.close_whole()
    digest = digest_of(content)
    line = (
        f"{study.name} {'is registered' if new else 'was registered before, without a difference'}: "
        f"{counted(claims, 'claim')}, {study.family.text(claims)}; digest {digest[:12]}"
    )
    show(as_json, {"study": study.name, "new": new, "digest": digest, "commit": commit, **content}, line)


# ---- costs


@click.command(
    epilog=examples(
        "costs quickstart",
        "costs quickstart --plot figures",
        "costs quickstart --scope reference_training --baseline uniform",
    )
)
@spec_options
@model_flags(CostOptions)
@click.option("--plot", "folder", type=FOLDER, metavar="DIR",
              help="Plot the cost of a step of IID, JEST, and Flexi-JEST at SPEC's sizes.")  # fmt: skip
@json_option("Print JSON: costs in FLOPs.")
def costs_command(study: StudySpec, given: dict[str, Any], folder: Path | None, as_json: bool) -> None:
    """Show the cost of one training example in each run of SPEC, relative to uniform sampling.

    FLOPs are counted by two conventions. counted: all FLOPs that the code executes. paper: the JEST paper's
    formulas, in which training reuses the scoring pass, and loss and selection are free. For the cost of
    whole runs, see `jestlab plan`.

    --plot writes PNG, SVG, and PDF for each convention. The sizes are those of the first run of SPEC that
    selects its batches, preferably one with an approximate scoring pass.
    """
    planned = _plan_for_display(study)
    found = cost_breakdown(planned, **dict(CostOptions(**given)))
    paths = [] if folder is None else _plot_costs(study, found, folder)
    text = [*_breakdown(found), *absent_data(planned), *paths]
    show(as_json, _breakdown_data(study, found) | {"plots": paths}, text)


def _plot_costs(study: StudySpec, found: CostBreakdown, folder: Path) -> list[str]:
    """Plot the cost of a step of each method, by each convention; return the paths."""
    from jestlab.analysis.figures import method_costs  # a slow import that only --plot needs

    step = found.selecting
    if step is None:
        raise UserError(
            f"study {study.name}: no run selects its batches, so no costs can be drawn: omit --plot"
        )
    with writing(folder):
        drawn = [method_costs(step, convention).save(folder) for convention in CONVENTIONS]
    return [str(path) for paths in drawn for path in paths]


def _breakdown(found: CostBreakdown) -> Iterator[Block]:
    yield "Cost of one example seen, as a multiple of uniform sampling's with the same towers:"
    yield ""
    rows = []
    for entry in found.entries:
        for convention in CONVENTIONS:
            cost, relative = entry.step.cost(convention), entry.step.relative(convention)
            whole = entry.step.iid.cost(convention).total()
            matching = entry.matching[convention]
            parts = [_multiple(getattr(cost, component) / whole) for component in EXECUTED]
            label = entry.label if convention == CONVENTIONS[0] else ""
            flops = units.flops(cost.total("reference_scoring"))
            equal = "none" if matching is None else _written(matching, units.count)
            rows.append((label, convention, *parts, f"{relative:.2f}", flops, equal))
    columns = ("run", "by", *_PARTS, "all", "FLOPs", "equal budget")
    yield table(columns, rows, range(2, len(columns)), _IMPORTANCE)
    yield ""
    yield (
        f"equal budget: the number of examples that cost as much as all examples of {found.baseline}, "
        f"in scope {found.scope}."
    )
    needing = [entry for entry in found.entries if entry.shared_by is not None]
    if needing:
        yield ""
        yield from _references(needing)
    if found.left_out:
        yield f"Without a cost per example: {', '.join(found.left_out)}."


def _references(entries: list[LabelCost]) -> Iterator[Block]:
    """Return a table of the cost of training the reference models that runs need, and of each run's share."""
    rows = [
        (
            entry.label,
            units.flops(entry.cost.total("reference_scoring")),
            _written(entry.reference_training),
            str(entry.shared_by),
            _written(entry.cost.reference_training),
            _written(entry.cost.total("reference_training")),
        )
        for entry in entries
    ]
    columns = ("run", "itself", "ref. training", "shared by", "share", "with share")
    yield table(columns, rows, range(1, len(columns)), {"share": 40, "itself": 50})
    yield ""
    yield (
        "The cost of training a reference is shared by the runs of this study that need it; a single run "
        "would pay all of it."
    )


def _written(amount: float, write: Callable[[float], str] = units.flops) -> str:
    return "unknown" if math.isnan(amount) else write(amount)


def _known(amount: float | None) -> float | None:
    return None if amount is None or math.isnan(amount) else amount


def _multiple(value: float) -> str:
    return "–" if value == 0 else f"{value:.3f}" if value >= 0.0005 else "<0.001"


def _breakdown_data(study: StudySpec, found: CostBreakdown) -> dict[str, Any]:
    return {
        "study": study.name,
        "scale": study.scale,
        "baseline": found.baseline,
        "scope": found.scope,
        "runs": [
            {
                "label": entry.label,
                "seeds": entry.seeds,
                "examples": entry.examples,
                "step": asdict(entry.step),
                "per_example": {
                    convention: {
                        **{f"{part}_flops": getattr(cost, part) for part in EXECUTED},
                        "total_flops": cost.total("reference_scoring"),
                        "relative": entry.step.relative(convention),
                        "equal_budget_examples": _known(entry.matching[convention]),
                    }
                    for convention in CONVENTIONS
                    for cost in [entry.step.cost(convention)]
                },
                "executed_flops": entry.cost.total("reference_scoring"),
                "reference_training_flops": _known(entry.reference_training),
                "reference_shared_by": entry.shared_by,
                "reference_training_share_flops": _known(entry.cost.reference_training),
            }
            for entry in found.entries
        ],
        "left_out": list(found.left_out),
    }
