"""`jestlab list`: studies that can be launched by name."""

from __future__ import annotations

import json

import click

from jestlab.platform.cli.text import table

_EPILOG = """\b
Example:
  jestlab list
"""


@click.command("list", epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the studies that can be launched by name, and their runs at each scale; a union runs several."""
    from jestlab.platform.plan import plan
    from jestlab.platform.spec import registry
    from jestlab.platform.spec.load import load, scales_of

    studies = []
    for name in registry.names():
        at_scale = {scale: load(name, scale) for scale in scales_of(registry.module(name), name)}
        study = next(iter(at_scale.values()))
        runs = {scale: len(plan(its, absent="note").runs) for scale, its in at_scale.items()}
        studies.append((study, runs))
    if as_json:
        data = [
            {
                "name": study.name,
                "question": study.question,
                "paper": study.paper,
                "runs": runs,
                "studies": list(study.studies),
            }
            for study, runs in studies
        ]
        click.echo(json.dumps(data, ensure_ascii=False))
        return
    rows = [
        (
            study.name,
            " ".join(f"{scale}:{count}" for scale, count in runs.items()),
            study.paper or "–",
            (f"union of {len(study.studies)} studies: " if study.studies else "") + study.question,
        )
        for study, runs in studies
    ]
    click.echo(table(("STUDY", "RUNS", "PAPER", "QUESTION"), rows))
