"""`jestlab register`: record the claims of a study, and how they are judged, before its first run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from jestlab.platform.cli.options import decide_option, examples, json_option, lab_options, spec_options
from jestlab.platform.cli.output import show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.whoami import person
from jestlab.platform.words import counted


@click.command(epilog=examples("register my_study.yaml --decide", "register paper --decide"))
@spec_options
@decide_option
@click.option(
    "--author", metavar="NAME", help="Author of the registration  [default: git's user.name, or you]"
)
@json_option("Print the registration as JSON.")
@lab_options
def register_command(study: StudySpec, author: str | None, *, as_json: bool, lab: Lab) -> None:
    """Register SPEC before its first run: its claims, error rate, seeds, metrics, score, and runs.

    Tables and pages show the time of the registration, and mark later changes as exploratory. Launch the
    study with the same `--decide`, `--scale`, and `--set`. A study can be registered again until its first
    run starts.
    """
    from jestlab.analysis.claims.registration import digest_of
    from jestlab.platform.launch.options import LaunchOptions
    from jestlab.platform.launch.session import plan_study
    from jestlab.platform.planning import deciding
    from jestlab.platform.store.annotations import register
    from jestlab.platform.store.provenance import Checkout
    from jestlab.platform.store.store import Store

    claims = sum(len(part.claims) for part in (study, *study.studies.values()))
    if not claims:
        raise UserError(f"{study.name} has no claims: write `claims` in its spec")
    plan = plan_study(lab, study, LaunchOptions())
    checkout = Checkout.of(Path(__file__).parents[1])
    commit = None if checkout is None else checkout.commit
    content = deciding.registered_content(plan)
    with closing(Store.open(lab.store_url)) as store:
        author = author or person()
        new = register(store, study.name, content, plan.fingerprints, author=author, commit=commit)
        store.close_whole()
    digest = digest_of(content)
    error = "per claim" if study.family.adjust == "none" else "for all together"
    line = (
        f"{study.name} {'is registered' if new else 'was registered before, without a difference'}: "
        f"{counted(claims, 'claim')}, an error rate of {study.family.error:.0%} {error}; digest {digest[:12]}"
    )
    show(as_json, {"study": study.name, "new": new, "digest": digest, "commit": commit, **content}, line)
