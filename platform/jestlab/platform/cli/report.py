"""`jestlab report`: an experiment as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jestlab.analysis.costs import SCOPES, Scope
from jestlab.platform import reports
from jestlab.platform.cli.naming import stored_study
from jestlab.platform.cli.options import baseline_option, examples, json_option, lab_options
from jestlab.platform.cli.output import show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study

EPILOG = examples("report quickstart", "report quickstart --baseline uniform --out ~/for-my-colleagues")


@click.command(name="report", epilog=EPILOG)
@click.argument("experiment")
@baseline_option("as the spec's reports say, else the first run that is not a reference")
@click.option("--scope", type=click.Choice(SCOPES),
              help="Which FLOPs count; each scope includes the ones before it  [default: as the spec's "
                   "reports say, else scoring]")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to write to  [default: <root>/reports/EXPERIMENT]")  # fmt: skip
@json_option("Print the paths of all files as a JSON list.")
@lab_options
def command(
    lab: Lab,
    experiment: str,
    baseline: str | None,
    scope: Scope | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write EXPERIMENT as one HTML page, report.html, and print its path.

    The page opens from disk and needs no network: the answer, tables in which every number links to its
    provenance, interactive figures, the spec's further reports, planned and actual costs, failures, and how
    to reproduce it. The folder report/ beside it holds the tables as .tex and .csv and the figures as .pdf
    and .png, each with a file that states its provenance.

    Without --baseline, --scope and --out this is the page that a launch writes, and it is left as it is if it
    is up to date. With any of them it is always written; in the lab's own folder it then stays until the next
    launch, or report without them.
    """
    from jestlab.analysis.report import (
        build,  # here, because NumPy takes longer to import than --help may
    )

    folder = out.expanduser() if out is not None else lab.reports / experiment
    as_launched = baseline is None and scope is None and out is None
    study, made_from = _of_store(lab, experiment) if as_launched else (None, "")
    paths = _still_right(folder, made_from) if study is not None else []
    try:
        if not paths:
            reports.remove_builds(folder)
            paths = build(lab.store_url, experiment, folder, baseline, scope)
            # The page of a union links to its studies' pages, which change independently.
            if study is not None and not study.studies:
                names = tuple(str(path.relative_to(folder)) for path in paths)
                reports.Build(made_from, names).write(folder, reports.PAGE_BUILD_FILE)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    show(as_json, [str(path) for path in paths], paths[0])


def _of_store(lab: Lab, experiment: str) -> tuple[Study | None, str]:
    """Read a study and the key of what its reports depend on.

    Returns:
        None and no key where they cannot be read: an older store, or a study whose programs are missing.
        There is a page all the same.
    """
    store = None
    try:
        if (store := Store.open_readonly(lab.store_url)) is None:
            return None, ""
        study = stored_study(store, experiment)
        return study, reports.build_key(store, study)
    except UserError:
        return None, ""
    finally:
        if store is not None:
            store.close()


def _still_right(folder: Path, made_from: str) -> list[Path]:
    """List the existing page and the files beside it; nothing where the page is outdated or missing."""
    from jestlab.analysis.report import FOLDER, PAGE

    for name in (reports.BUILD_FILE, reports.PAGE_BUILD_FILE):
        stamp = reports.read_build(folder, made_from, name)
        files = () if stamp is None else stamp.files
        if PAGE in files:
            return [folder / PAGE, *(folder / file for file in files if Path(file).parts[0] == FOLDER)]
    return []
