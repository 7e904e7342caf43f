"""`jestlab report`: all that an experiment came to, as one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jestlab.analysis.costs import SCOPES, Scope
from jestlab.platform.cli.common import lab_options
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study

EPILOG = """\b
Examples:
  jestlab report quickstart
  jestlab report quickstart --baseline uniform --out ~/for-my-colleagues
"""


@click.command(name="report", epilog=EPILOG)
@click.argument("experiment")
@click.option("--baseline", metavar="RUN",
              help="Run or label to compare with [what the spec's reports say, else the first that is no "
                   "reference].")  # fmt: skip
@click.option("--scope", type=click.Choice(SCOPES),
              help="What counts as FLOPs; each holds the ones before it [what the spec's reports say, else "
                   "scoring].")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to write to [<root>/reports/EXPERIMENT].")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the paths of all files as a JSON list.")
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

    It opens from disk and needs no network: the answer, tables whose cells open what they are made of,
    interactive figures, what else the spec asks for under reports, costs planned against actual, failures,
    and how to reproduce it. In report/ beside it lie the same tables as .tex and .csv, the figures as .pdf
    and .png, each with a file that says what it was made from.

    Without --baseline, --scope and --out this is the page that a launch writes: where it is there already and
    nothing has changed since, it is left as it is. With any of them it is written in any case; in the lab's
    own folder it then stays so until the next launch, or report without them.
    """
    from jestlab.analysis.report.build import build
    from jestlab.platform import stamps

    folder = out.expanduser() if out is not None else lab.reports / experiment
    as_launched = baseline is None and scope is None and out is None
    study, made_from = _of_store(lab, experiment) if as_launched else (None, "")
    paths = _still_right(folder, made_from) if study is not None else []
    try:
        if not paths:
            stamps.remove(folder)
            paths = build(lab.store_url, experiment, folder, baseline, scope)
            # That of a union leads to its studies' pages, which come and go without it.
            if study is not None and not study.studies:
                names = tuple(str(path.relative_to(folder)) for path in paths)
                stamps.Stamp(made_from, names).write(folder, stamps.PAGE_NAME)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    click.echo(json.dumps([str(path) for path in paths]) if as_json else paths[0])


def _of_store(lab: Lab, experiment: str) -> tuple[Study | None, str]:
    """A study and what its reports depend on; None where this build cannot tell, which has a page all the
    same: an older store, or a study of programs that are not there."""
    from jestlab.platform import stamps
    from jestlab.platform.cli.launching import stored_study
    from jestlab.platform.store.store import Store

    store = None
    try:
        if (store := Store.open_readonly(lab.store_url)) is None:
            return None, ""
        study = stored_study(store, experiment)
        return study, stamps.made_from(store, study)
    except UserError:
        return None, ""
    finally:
        if store is not None:
            store.close()


def _still_right(folder: Path, made_from: str) -> list[Path]:
    """The page that is there, and then what lies beside it; nothing where it is outdated or missing."""
    from jestlab.analysis.report.build import FOLDER, PAGE
    from jestlab.platform import stamps

    for name in (stamps.NAME, stamps.PAGE_NAME):
        stamp = stamps.read(folder, made_from, name)
        files = () if stamp is None else stamp.files
        if PAGE in files:
            return [folder / PAGE, *(folder / file for file in files if Path(file).parts[0] == FOLDER)]
    return []
