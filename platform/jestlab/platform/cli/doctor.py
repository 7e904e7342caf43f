"""`jestlab doctor`: check the installation and the lab."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict

import click
from rich.console import Console

from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json
from jestlab.platform.lab.doctor import Level, examine
from jestlab.platform.lab.lab import Lab

_EPILOG = examples("doctor", "doctor --no-jax --json")


@click.command("doctor", epilog=_EPILOG)
@click.option("--jax/--no-jax", default=True, help="Whether to check which devices JAX finds.")
@json_option()
@lab_options
def command(jax: bool, as_json: bool, lab: Lab) -> None:
    """Check Python, packages, JAX, store, disk and clouds, and say how to fix what is wrong.

    Exit code: 0 everything needed works, 1 something is broken.
    """
    console = Console(stderr=True)
    findings = []
    waiting = console.status("checking …") if console.is_terminal else nullcontext()
    with waiting:
        for finding in examine(lab, jax):
            findings.append(finding)
            if not as_json:
                remedy = f": {finding.remedy}" if finding.remedy else ""
                click.echo(f"{finding.level:8} {finding.check:12} {finding.found}{remedy}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.level is Level.BROKEN for finding in findings):
        raise SystemExit(1)
