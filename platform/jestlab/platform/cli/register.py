"""`jestlab register`: write down what a study claims, and how it is judged, before its first run."""

from __future__ import annotations

from pathlib import Path

import click

from jestlab.analysis.claims.registration import digest_of
from jestlab.platform.cli.options import decide_option, examples, json_option, lab_options, spec_options
from jestlab.platform.cli.output import counted, show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.spec.schema import Study
from jestlab.platform.whoami import person


@click.command(epilog=examples("register my_study.yaml --decide", "register paper --decide"))
@spec_options
@decide_option
@click.option("--author", metavar="NAME", help="Who registers it  [default: git's user.name, else you]")
@json_option("Print what is registered as JSON.")
@lab_options
def register_command(study: Study, author: str | None, *, as_json: bool, lab: Lab) -> None:
    """Register SPEC before its first run: its claims, the error of their family, seeds, metrics, score, runs.

    Tables and pages say when it was registered, and mark as exploratory what is not as it was then. Launch it
    as it was registered, with the same `--decide`, `--scale` and `--set`. Until its first run begins, a study
    can be registered anew.
    """
    from contextlib import closing

    from jestlab.platform.launch.session import How, planned
    from jestlab.platform.planning import registering
    from jestlab.platform.store.code import Checkout
    from jestlab.platform.store.judgments import register
    from jestlab.platform.store.store import Store

    parts = (study, *study.studies.values())
    claims = sum(len(part.claims) for part in parts)
    if not claims:
        raise UserError(f"{study.name} claims nothing: write `claims` in its spec")
    plan = planned(lab, study, How())
    checkout = Checkout.of(Path(__file__).parents[1])
    commit = None if checkout is None else checkout.commit
    with closing(Store.open(lab.store_url)) as store:
        content = registering.content(plan)
        new = register(
            store, study.name, content, plan.fingerprints, author=author or person(), commit=commit
        )
        store.close_whole()
    digest = digest_of(content)
    error = "each by itself" if study.family.adjust == "none" else "together"
    said = [
        f"{study.name} {'is registered' if new else 'was registered as it is'}: {counted(claims, 'claim')}, "
        f"an error of {study.family.error:.0%} {error}; digest {digest[:12]}"
    ]
    show(as_json, {"study": study.name, "new": new, "digest": digest, "commit": commit, **content}, said)
