"""`jestlab doctor`: check the installation and the lab, with one remedy for each problem."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from sqlalchemy import func, select

from jestlab.analysis.connection import SCHEMA
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.dependencies import LAUNCHING, missing_client
from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.lab import gc
from jestlab.platform.lab.bucket import Bucket
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import path as settings_path
from jestlab.platform.render import styled, table
from jestlab.platform.store import schema
from jestlab.platform.store.address import parse_url, shown_url
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import insert, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Launcher

PROCESS_SECONDS = 60.0
"""Time limit of a check in another process."""

_LITTLE_DISK, _NO_DISK = 5e9, 2e8  # bytes
_SILENT = timedelta(minutes=10)
_CLOCK_SKEW = timedelta(minutes=1)
_STALE = timedelta(days=1)  # the default of `jestlab gc`


class Level(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.BROKEN: "red"}


@dataclass(frozen=True)
class CheckResult:
    """The finding of a check, and the remedy; empty if everything is fine."""

    check: str
    level: Level
    found: str
    remedy: str = ""


@click.command(epilog=examples("doctor", "doctor --no-jax --json"))
@click.option("--jax/--no-jax", default=True, help="Whether to check which devices JAX finds.")
@json_option()
@lab_options
def doctor_command(jax: bool, as_json: bool, lab: Lab) -> None:
    """Check packages, settings, store, disk, clouds, and JAX, and show how to fix each problem.

    Exit code: 0 everything required works, 1 something is broken.
    """
    found = []
    for each in _with_spinner(examine(lab, jax)):
        found.append(each)
        if not as_json:
            level = styled(f"{each.level:8}", _STYLES[each.level])
            text = f"{each.found}: {each.remedy}" if each.remedy else each.found
            say(table(("", "", ""), [(level, f"{each.check:12}", text)]))
    if as_json:
        print_json(list(map(asdict, found)))
    if any(each.level is Level.BROKEN for each in found):
        raise SystemExit(1)


def _with_spinner(results: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Show that a check is running, on a terminal."""
    console = Console(stderr=True)
    while True:
        with console.status("checking …") if console.is_terminal else nullcontext():
            result = next(results, None)
        if result is None:
            return
        yield result


def examine(lab: Lab, jax: bool = True) -> Iterator[CheckResult]:
    """Run all checks; none of them raises. The check of JAX may take a minute."""
    for name, check in (_CHECKS | ({"jax": _jax} if jax else {})).items():
        try:
            yield from check(lab)
        except UserError as error:
            yield CheckResult(name, Level.BROKEN, "not usable", str(error))
        except Exception as error:  # an unexpected failure is a result, too
            text = " ".join(f"{type(error).__name__}: {error}".split())
            yield CheckResult(name, Level.BROKEN, "check failed", text)


# ---- the installation


def _packages(lab: Lab) -> Iterator[CheckResult]:
    """Check that the required packages are installed in the required versions."""
    from packaging.requirements import Requirement

    try:
        required = [Requirement(text) for text in metadata.requires("jestlab") or ()]
    except metadata.PackageNotFoundError:
        yield CheckResult(
            "packages", Level.WARNING, "jestlab is not installed", "pip install -e . in its folder"
        )
        return
    required = [each for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]
    omitted, wrong = [], []
    for each in required:
        try:
            version = metadata.version(each.name)
        except metadata.PackageNotFoundError:
            version = ""
        if not version and each.name in LAUNCHING:
            omitted.append(f"{each.name} ({LAUNCHING[each.name]})")
        elif not version or not each.specifier.contains(version, prereleases=True):
            wrong.append((each, version or "missing"))
    if omitted:
        remedy = "only workers run without them: launch and read results where all of jestlab is installed"
        yield CheckResult("packages", Level.WARNING, f"without {', '.join(omitted)}", remedy)
    if wrong:
        found = ", ".join(f"{each.name} {version}" for each, version in wrong)
        remedy = "pip install " + " ".join(f"'{each.name}{each.specifier}'" for each, _ in wrong)
        yield CheckResult("packages", Level.BROKEN, found, remedy)
    if not omitted and not wrong:
        yield CheckResult("packages", Level.OK, f"all {len(required)} as required")


def _settings(lab: Lab) -> Iterator[CheckResult]:
    place, settings = settings_path(), Settings.find()
    found = f"{place}, runs on {settings.on or 'this machine'}" if place.exists() else f"none at {place}"
    yield CheckResult("config file", Level.OK, found)


def _jax(lab: Lab) -> Iterator[CheckResult]:
    code = (
        "import json, jax; devices = jax.devices(); print(json.dumps({'version': jax.__version__,"
        "'backend': jax.default_backend(), 'count': len(devices), 'kind': devices[0].device_kind}))"
    )
    answer, problem = _in_process(code)
    if answer is None:
        remedy = "set JAX_PLATFORMS=cpu to run without the accelerator; else fix its driver or reinstall jax"
        yield CheckResult("jax", Level.BROKEN, problem, remedy)
    else:
        yield CheckResult("jax", Level.OK, "{version}, {count} × {kind} ({backend})".format(**answer))


# ---- the lab


def _folder(lab: Lab) -> Iterator[CheckResult]:
    place = _nearest_existing(lab.root)
    if not place.is_dir():
        yield CheckResult("folder", Level.BROKEN, f"{place} is not a folder", "choose another --root")
    elif not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        yield CheckResult(
            "folder", Level.BROKEN, f"no permission to write in {place}", "choose another --root"
        )
    else:
        found = str(lab.root) if place == lab.root else f"{lab.root}, not created yet"
        yield CheckResult("folder", Level.OK, found)


def _bucket(lab: Lab) -> Iterator[CheckResult]:
    """Write, read, and delete an object in the lab's bucket."""
    if lab.remote is None:
        return
    bucket, name = Bucket(lab.remote), f".doctor-{uuid.uuid4().hex}"
    try:
        bucket.write(name, b"test")
        bucket.read(name)
        bucket.delete([name])
    except BucketUnreachable as error:
        remedy = "gcloud auth application-default login, or fix the bucket's permissions"
        yield CheckResult("bucket", Level.BROKEN, str(error), remedy)
    else:
        yield CheckResult("bucket", Level.OK, f"{lab.remote}, writable")


def _disk(lab: Lab) -> Iterator[CheckResult]:
    free = shutil.disk_usage(_nearest_existing(lab.root)).free
    level = Level.OK if free >= _LITTLE_DISK else Level.WARNING if free >= _NO_DISK else Level.BROKEN
    remedy = "" if level is Level.OK else "free some space: jestlab gc lists unreferenced files"
    yield CheckResult("disk", level, f"{free / 1e9:,.1f} GB free at {lab.root}", remedy)


def _store(lab: Lab) -> Iterator[CheckResult]:
    """Read the store, write to it, and compare its newest times with this machine's clock."""
    address = shown_url(parse_url(lab.store_url))
    try:
        existing = Store.open_readonly(lab.store_url)
    except schema.EmptyStore:
        existing = None
    if existing is None:
        yield CheckResult("store", Level.OK, f"{address}, created by the first launch")
        return
    existing.close()
    with closing(Store.open(lab.store_url, create=False)) as store:
        with suppress(_Rollback), store.writing() as connection:
            name = f"doctor {uuid.uuid4()}"
            connection.execute(insert(connection, Launcher).values(name=name, heartbeat_at=now()))
            raise _Rollback
        yield CheckResult("store", Level.OK, f"{address}, schema {SCHEMA}, writable")
        with store.reading() as connection:
            last = connection.scalar(select(func.max(Attempt.heartbeat_at)))
            is_silent = (Attempt.state == RunState.RUNNING, Attempt.heartbeat_at < now() - _SILENT)
            silent = connection.scalar(select(func.count()).select_from(Attempt).where(*is_silent))
    if last is not None and last > now() + _CLOCK_SKEW:
        found = f"{(last - now()).total_seconds():,.0f} s behind another machine's"
        yield CheckResult("clock", Level.WARNING, found, "set the clocks of all machines of the lab by NTP")
    if silent:
        found = f"{silent} running without a heartbeat for {_SILENT.total_seconds() / 60:.0f} minutes"
        yield CheckResult("attempts", Level.WARNING, found, "see jestlab status; launch again to resume them")


class _Rollback(Exception):
    """Ends a transaction without a change."""


def _leftovers(lab: Lab) -> Iterator[CheckResult]:
    if found := list(gc.leftovers(lab, _STALE)):
        remedy = "jestlab gc lists them, jestlab gc --delete removes them"
        yield CheckResult("leftovers", Level.WARNING, f"{len(found)} partial files and locks", remedy)
    else:
        yield CheckResult("leftovers", Level.OK, "none")


# ---- executors


def _is_configured(executor: str) -> bool:
    settings = Settings.find()
    section = getattr(settings, executor)
    return settings.on == executor or bool(section != type(section)())


def _unready(executor: str) -> CheckResult | None:
    """Return the result for an executor that isn't configured, or whose client is missing."""
    if not _is_configured(executor):
        return CheckResult(executor, Level.OK, "not configured")
    if (missing := missing_client(executor)) is not None:
        found, _, remedy = missing.partition(": ")
        return CheckResult(executor, Level.BROKEN, found, remedy)
    return None


def _vertex(lab: Lab) -> Iterator[CheckResult]:
    if (result := _unready("vertex")) is not None:
        yield result
        return
    code = (
        "import google.auth;"
        "google.auth.default(scopes=['https://www.googleapis.com/auth/cloud-platform']); print('{}')"
    )
    answer, problem = _in_process(code)
    if answer is None:
        yield CheckResult("vertex", Level.BROKEN, problem, "gcloud auth application-default login")
    else:
        yield CheckResult(
            "vertex", Level.OK, f"credentials for Google Cloud, project {Settings.find().vertex.project}"
        )


def _kubernetes(lab: Lab) -> Iterator[CheckResult]:
    context = Settings.find().kubernetes.context
    if (result := _unready("kubernetes")) is not None:
        yield result
        return
    if os.environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        yield CheckResult("kubernetes", Level.OK, "inside a cluster")
        return
    import yaml

    names = os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(name).expanduser() for name in names.split(os.pathsep) if name]
    contents: list[dict[str, Any]] = [
        yaml.safe_load(file.read_text()) or {} for file in files if file.is_file()
    ]
    known = [str(each["name"]) for content in contents for each in content.get("contexts") or ()]
    currents = (content["current-context"] for content in contents if content.get("current-context"))
    context = context or next(currents, None)
    if context is None:
        remedy = "gcloud container clusters get-credentials …"
        yield CheckResult("kubernetes", Level.BROKEN, "no context", remedy)
    elif context not in known:
        found = f"no context {context!r} in {', '.join(map(str, files))}"
        yield CheckResult("kubernetes", Level.BROKEN, found, "name one of `kubectl config get-contexts`")
    else:
        yield CheckResult("kubernetes", Level.OK, f"context {context}")


def _slurm(lab: Lab) -> Iterator[CheckResult]:
    from jestlab.platform.launch.executors import slurm_site

    if not _is_configured("slurm") and not slurm_site.is_here():
        yield CheckResult("slurm", Level.OK, "not configured")
        return
    levels = {True: Level.OK, None: Level.WARNING, False: Level.BROKEN}
    for is_ok, found, remedy in slurm_site.examine(lab, Settings.find().slurm):
        yield CheckResult("slurm", levels[is_ok], found, remedy)


_CHECKS: dict[str, Callable[[Lab], Iterator[CheckResult]]] = {
    "packages": _packages,
    "config file": _settings,
    "folder": _folder,
    "disk": _disk,
    "bucket": _bucket,
    "store": _store,
    "leftovers": _leftovers,
    "vertex": _vertex,
    "kubernetes": _kubernetes,
    "slurm": _slurm,
}


def _in_process(code: str) -> tuple[dict[str, Any] | None, str]:
    """Run Python code in a process, which may hang or crash; return the JSON that it prints, or an error."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=PROCESS_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {PROCESS_SECONDS:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        return None, " ".join(lines[-1].split())[:300]
    answer: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return answer, ""


def _nearest_existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())
