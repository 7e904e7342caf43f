"""`jestlab list`: studies that can be launched by name."""

from __future__ import annotations

import click

from jestlab.platform.cli.options import json_option
from jestlab.platform.cli.output import counted, print_json, table
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load, scales_of, study_module, study_names


@click.command("list", epilog="\b\nExamples:\n  jestlab list")
@json_option()
def command(as_json: bool) -> None:
    """List the studies that can be launched by name, and the number of their runs at each scale."""
    studies = []
    for name in study_names():
        at_scale = {scale: load(name, scale) for scale in scales_of(study_module(name), name)}
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
        print_json(data)
        return
    rows = [
        (
            study.name,
            " ".join(f"{scale}:{count}" for scale, count in runs.items()),
            study.paper or "–",
            (f"union of {counted(len(study.studies), 'study')}: " if study.studies else "") + study.question,
        )
        for study, runs in studies
    ]
    click.echo(table(("STUDY", "RUNS", "PAPER", "QUESTION"), rows))
