"""`jestlab show`: describe a study."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from jestlab.analysis.claims.stopping import Until
from jestlab.platform.cli.options import examples, json_option, spec_options
from jestlab.platform.cli.output import print_or_write, show
from jestlab.platform.planning.plan import plan
from jestlab.platform.planning.show import absent_data
from jestlab.platform.render import Block, styled, table
from jestlab.platform.spec.resources import LOCAL_PARALLEL
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import flatten
from jestlab.platform.words import counted


@click.command(epilog=examples("show quickstart", "show quickstart --set seeds=5 --yaml > five_seeds.yaml"))
@spec_options
@click.option(
    "--yaml", "as_yaml", is_flag=True, help="Print the resolved spec, which launches the same runs."
)
@json_option("Print the resolved spec as JSON.")
def show_command(study: StudySpec, as_yaml: bool, as_json: bool) -> None:
    """Show the question, runs, axes, and reports of SPEC: a registered name, or a .py or .yaml file."""
    if as_yaml and as_json:
        raise click.UsageError("--yaml and --json: expected only one of them")
    if as_yaml:
        print_or_write(None, study.to_yaml())
    else:
        show(as_json, study.to_dict(), _description(study))


def _description(study: StudySpec) -> Iterator[Block]:
    yield styled(f"{study.name} ({study.scale})" if study.scale else study.name, "bold")
    if study.question:
        yield f"  {study.question}"
    if study.paper:
        yield f"  {study.paper} of the paper"
    yield from _union(study) if study.studies else _study(study)
    planned = plan(study, note_absent=True, placement="none")
    resources = study.resources
    parallel = resources.parallel or (LOCAL_PARALLEL if resources.tpu is None else None)
    yield (
        "\n"
        + counted(len(planned.runs), "run")
        + (f", {parallel} at a time" if parallel else "")
        + (f", each on {resources.tpu}" if resources.tpu else "")
    )
    yield from absent_data(planned)


def _union(study: StudySpec) -> Iterator[Block]:
    claims = sum(len(part.claims) for part in study.studies.values())
    counts = [counted(len(study.studies), "study"), *([counted(claims, "claim")] if claims else [])]
    yield f"\nunion of {', '.join(counts)}"
    rows = []
    for name, part in study.studies.items():
        rows.append((name, ", ".join(filter(None, [part.paper, part.question]))))
    yield table(("", ""), rows, indent=2)
    yield from ("", _reports(study))


def _study(study: StudySpec) -> Iterator[Block]:
    """Describe an ordinary study."""
    if study.base:
        yield from ("", styled("base", "bold"))
        yield from (f"  {key} = {text}" for key, text in _texts(study.base).items())
    yield from ("", styled("runs", "bold"))
    rows = []
    for name, run in study.to_dict().get("runs", {}).items():
        rows.append((name, "  ".join(f"{key}={text}" for key, text in _texts(run).items())))
    yield table(("", ""), rows, indent=2)
    if study.axes:
        yield from ("", styled("axes", "bold"))
    for axis in study.axes:
        yield f"  {', '.join(axis.runs)}: {axis.kind}, {counted(axis.count, 'point')}"
        values = getattr(axis, axis.kind)
        if isinstance(values, Mapping):
            yield from (f"    {key}: {', '.join(map(_text, column))}" for key, column in values.items())
        else:
            yield from (f"    {'  '.join(f'{key}={_text(v)}' for key, v in case.items())}" for case in values)
    yield from ("", table(("", ""), [(styled("seeds", "bold"), _seeds(study))]), _reports(study))
    if study.claims:
        yield from ("", styled("claims", "bold"))
    for claim in study.claims:
        yield f"  {claim.statement}{f' ({claim.source})' if claim.source else ''}"
        yield f"    {claim}"


def _seeds(study: StudySpec) -> str:
    until = study.seeds
    if not isinstance(until, Until):
        return ", ".join(map(str, until))
    budget = "" if until.hours is None else f", within {until.hours:g} hours of its runs"
    return f"until decided, at least {until.at_least}, at most {until.at_most}{budget}"


def _reports(study: StudySpec) -> Block:
    texts = []
    for report in study.reports:
        options = report.model_dump(exclude_defaults=True)
        kind = options.pop("kind")
        listed = ", ".join(f"{key} {value}" for key, value in options.items())
        texts.append(f"{kind} ({listed})" if options else kind)
    return table(("", ""), [(styled("reports", "bold"), ", ".join(texts) or "–")])


def _texts(config: dict[str, Any]) -> dict[str, str]:
    return {key: _text(value) for key, value in flatten(config).items()}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
