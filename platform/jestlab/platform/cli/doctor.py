"""`jestlab doctor`: whether all that is needed is there."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.lab import Lab

_EPILOG = """\b
Example:
  jestlab doctor
  jestlab doctor --no-jax --json
"""


@click.command("doctor", epilog=_EPILOG)
@click.option("--jax/--no-jax", default=True, help="Whether to ask JAX for its devices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@lab_options
def command(jax: bool, as_json: bool, lab: Lab) -> None:
    """Check Python, packages, JAX, store, disk and clouds; say of each what to do. Exit code 1: broken."""
    from rich.console import Console

    from jestlab.platform.doctor import Level, examine

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
        click.echo(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    if any(finding.level is Level.BROKEN for finding in findings):
        raise SystemExit(1)
