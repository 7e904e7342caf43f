"""`jestlab show`: one study: its question, runs, axes and reports, or its resolved spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from jestlab.platform.cli.options import examples, json_option, spec_options
from jestlab.platform.cli.output import absent_data, counted, print_json
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.config_tree import flatten
from jestlab.platform.spec.resources import LOCAL_PARALLEL, Resources
from jestlab.platform.spec.schema import Study

_EPILOG = examples("show quickstart", "show quickstart --set seeds=5 --yaml > five_seeds.yaml")


@click.command("show", epilog=_EPILOG)
@spec_options
@click.option(
    "--yaml", "as_yaml", is_flag=True, help="Print the resolved spec, which launches the same runs."
)
@json_option("Print the resolved spec as JSON.")
def command(study: Study, as_yaml: bool, as_json: bool) -> None:
    """Show the question, runs, axes and reports of SPEC: a registered name, or a .py or .yaml file."""
    if as_yaml and as_json:
        raise click.UsageError("--yaml and --json: expected only one of them")
    if as_yaml:
        click.echo(study.to_yaml(), nl=False)
    elif as_json:
        print_json(study.to_dict())
    else:
        click.echo("\n".join(_lines(study)))


def _lines(study: Study) -> Iterator[str]:
    yield f"{study.name} ({study.scale})" if study.scale else study.name
    if study.question:
        yield f"  {study.question}"
    if study.paper:
        yield f"  {study.paper} of the paper"
    if study.studies:
        yield from _parts(study)
    else:
        yield from _details(study)
    planned = plan(study, absent="note")
    yield f"\n{counted(len(planned.runs), 'run')}{_where(study.resources)}"
    yield from absent_data(planned)


def _parts(study: Study) -> Iterator[str]:
    """List the studies of a union."""
    width = max(map(len, study.studies))
    claims = sum(len(part.claims) for part in study.studies.values())
    yield f"\nunion of {counted(len(study.studies), 'study')}" + (
        f", {counted(claims, 'claim')}" if claims else ""
    )
    for name, part in study.studies.items():
        about = ", ".join(filter(None, [part.paper, part.question]))
        yield f"  {name.ljust(width)}  {about}".rstrip()
    yield f"\nreports  {_reports(study)}"


def _reports(study: Study) -> str:
    return ", ".join(_report(report.model_dump(exclude_defaults=True)) for report in study.reports) or "–"


def _details(study: Study) -> Iterator[str]:
    """List base, runs, axes, seeds, reports and claims of an ordinary study."""
    yield from _section("base", _settings(study.base).items())
    width = max(len(name) for name in study.runs)
    yield "\nruns"
    for name, run in study.runs.items():
        said = {} if run.program is None else {"program": run.program}
        said |= {"needs": ", ".join(run.needs.values())} if run.needs else {}
        said |= {"match": str(run.match)} if run.match else {}
        changes = "  ".join(f"{key}={value}" for key, value in (said | _settings(run.overrides)).items())
        yield f"  {name.ljust(width)}  {changes}".rstrip()
    if study.axes:
        yield "\naxes"
    for axis in study.axes:
        points = sum(1 for _ in axis.points())
        yield f"  {', '.join(axis.runs)}: {axis.kind}, {counted(points, 'point')}"
        values = getattr(axis, axis.kind)
        if isinstance(values, Mapping):
            yield from (f"    {key}: {', '.join(map(_text, column))}" for key, column in values.items())
        else:
            yield from (f"    {'  '.join(f'{k}={_text(v)}' for k, v in case.items())}" for case in values)
    yield f"\nseeds  {', '.join(map(str, study.seeds))}"
    yield f"reports  {_reports(study)}"
    yield from _claims(study)


def _claims(study: Study) -> Iterator[str]:
    """List what is claimed, and what decides it."""
    if study.claims:
        yield "\nclaims"
    for claim in study.claims:
        yield f"  {claim.statement}{f' ({claim.source})' if claim.source else ''}"
        yield f"    {claim}"


def _where(resources: Resources) -> str:
    """Write how many runs run at a time, and on what."""
    on_pods = resources.tpu is not None
    parallel = resources.parallel or (None if on_pods else LOCAL_PARALLEL)
    return (f", {parallel} at a time" if parallel else "") + (f", each on {resources.tpu}" if on_pods else "")


def _section(title: str, settings: Any) -> Iterator[str]:
    lines = [f"  {key} = {value}" for key, value in settings]
    if lines:
        yield f"\n{title}"
        yield from lines


def _settings(config: dict[str, Any]) -> dict[str, str]:
    return {key: _text(value) for key, value in flatten(config).items()}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _report(options: dict[str, Any]) -> str:
    kind = options.pop("kind")
    return f"{kind} ({', '.join(f'{k} {v}' for k, v in options.items())})" if options else str(kind)
