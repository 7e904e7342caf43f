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
from contextlib import nullcontext
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
from jestlab.platform.dependencies import LAUNCHING, installed, missing_client
from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.lab import gc
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import path as settings_path
from jestlab.platform.lab.sync import Bucket
from jestlab.platform.render import styled
from jestlab.platform.store import schema
from jestlab.platform.store.address import parse_url, shown_url
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Launcher, insert, now

PROCESS_SECONDS = 60.0
"""How long JAX, or a cloud's library, may take to answer."""

_LITTLE_DISK, _NO_DISK = 5e9, 2e8  # bytes
_SILENT = timedelta(minutes=10)
_CLOCKS_APART = timedelta(minutes=1)
_STALE = timedelta(days=1)  # as `jestlab gc` has it


class Level(StrEnum):
    """How a check ended: fine, with a warning, or with something broken."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """What a check found, and the one thing to do; `remedy` is empty if there is nothing to do."""

    check: str
    level: Level
    found: str
    remedy: str = ""


def examine(lab: Lab, jax: bool = True) -> Iterator[Finding]:
    """Run all checks, one after another; none of them raises. Asking JAX for its devices may take a while."""
    checks: dict[str, Callable[[], Finding | list[Finding]]] = {
        "python": _python,
        "packages": _packages,
        "xmanager": _xmanager,
        "config file": _settings,
        "folder": lambda: _folder(lab),
        "disk": lambda: _disk(lab),
        "bucket": lambda: _bucket(lab),
        "store": lambda: _store(lab),
        "leftovers": lambda: _leftovers(lab),
        "vertex": lambda: _missing_client("vertex") or _vertex(),
        "kubernetes": lambda: _missing_client("kubernetes") or _kubernetes(),
        "slurm": lambda: _slurm(lab),
    }
    if jax:
        checks["jax"] = _jax
    for name, check in checks.items():
        try:
            found = check()
        except UserError as error:
            found = Finding(name, Level.BROKEN, "cannot be used", str(error))
        except Exception as error:  # a check that fails in a way nobody foresaw is a finding too
            said = " ".join(f"{type(error).__name__}: {error}".split())
            found = Finding(name, Level.BROKEN, "could not be checked", said)
        yield from found if isinstance(found, list) else [found]


def _python() -> Finding:
    from packaging.specifiers import SpecifierSet

    version = ".".join(map(str, sys.version_info[:3]))
    try:
        wanted = metadata.metadata("jestlab")["Requires-Python"] or ""
    except metadata.PackageNotFoundError:
        wanted = ""
    if SpecifierSet(wanted).contains(version, prereleases=True):
        return Finding("python", Level.OK, f"{version}, {sys.executable}")
    return Finding("python", Level.BROKEN, version, f"install Python {wanted}, and jestlab in it")


def _packages() -> list[Finding]:
    """Check what jestlab's own metadata ask for; a container for workers lacks what only launchers need."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in metadata.requires("jestlab") or ()]
    except metadata.PackageNotFoundError:
        return [
            Finding("packages", Level.WARNING, "jestlab is not installed", "pip install -e . in its folder")
        ]
    wrong, left_out, count = [], [], 0
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            if requirement.name in LAUNCHING:
                left_out.append(requirement.name)
            else:
                wrong.append((requirement, "missing"))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append((requirement, version))
    findings = []
    if left_out:
        lacking = ", ".join(f"{name} ({LAUNCHING[name]})" for name in left_out)
        remedy = "workers need none of them; launch and read results where all of jestlab is installed"
        findings.append(Finding("packages", Level.WARNING, f"without {lacking}", remedy))
    if wrong:
        found = ", ".join(f"{requirement.name} {version}" for requirement, version in wrong)
        quoted = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement, _ in wrong)
        findings.append(Finding("packages", Level.BROKEN, found, f"pip install {quoted}"))
    return findings or [Finding("packages", Level.OK, f"all {count} as required")]


def _xmanager() -> list[Finding]:
    if not installed("xmanager"):  # told with the packages
        return []
    code = "import xmanager.xm, xmanager.xm_local; print('{}')"
    answer, problem = _ask(code)
    if answer is None:
        remedy = "pip install --force-reinstall xmanager, in the version that packages asks for"
        return [Finding("xmanager", Level.BROKEN, problem, remedy)]
    return [Finding("xmanager", Level.OK, f"{metadata.version('xmanager')}, can be imported")]


def _settings() -> Finding:
    place = settings_path()
    settings = Settings.find()  # an error of it names file, line and key
    if not place.exists():
        return Finding("config file", Level.OK, f"none at {place}: not needed")
    return Finding("config file", Level.OK, f"{place}, runs go {settings.on or 'to this machine'}")


def _folder(lab: Lab) -> Finding:
    place = _nearest_existing(lab.root)
    if not place.is_dir():
        return Finding(
            "folder", Level.BROKEN, f"{place} is not a folder", "give another --root, or move it away"
        )
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return Finding("folder", Level.BROKEN, f"no permission to write in {place}", "give another --root")
    return Finding("folder", Level.OK, str(lab.root) if place == lab.root else f"{lab.root}, not made yet")


def _bucket(lab: Lab) -> list[Finding]:
    """Check that a lab's bucket can be written to and read."""
    if lab.remote is None:
        return []
    bucket, name = Bucket(lab.remote), f".doctor-{uuid.uuid4().hex}"
    try:
        bucket.write(name, b"well")
        bucket.read(name)
        bucket.delete([name])
    except BucketUnreachable as error:
        remedy = "gcloud auth application-default login, or fix the bucket's permissions"
        return [Finding("bucket", Level.BROKEN, str(error), remedy)]
    return [Finding("bucket", Level.OK, f"{lab.remote}, can be written")]


def _disk(lab: Lab) -> Finding:
    free = shutil.disk_usage(_nearest_existing(lab.root)).free
    level = Level.OK if free >= _LITTLE_DISK else Level.WARNING if free >= _NO_DISK else Level.BROKEN
    remedy = "" if level is Level.OK else "make room: jestlab gc shows what may go"
    return Finding("disk", level, f"{free / 1e9:,.1f} GB free at {lab.root}", remedy)


def _store(lab: Lab) -> list[Finding]:
    """Check the store: read it, write to it, and compare its clock with ours."""
    shown = shown_url(parse_url(lab.store_url))
    try:
        existing = Store.open_readonly(lab.store_url)
    except schema.EmptyStore:
        existing = None
    if existing is None:
        return [Finding("store", Level.OK, f"{shown}, not made yet: the first launch does")]
    existing.close()
    store = Store.open(lab.store_url, create=False)
    try:
        with store.writing() as connection:
            name = f"doctor {uuid.uuid4()}"
            connection.execute(insert(connection, Launcher).values(name=name, heartbeat_at=now()))
            raise _Enough
    except _Enough:
        pass
    findings = [Finding("store", Level.OK, f"{shown}, schema {SCHEMA}, can be written")]
    with store.reading() as connection:
        last = connection.scalar(select(func.max(Attempt.heartbeat_at)))
        silent = connection.scalar(
            select(func.count())
            .select_from(Attempt)
            .where(Attempt.state == RunState.RUNNING, Attempt.heartbeat_at < now() - _SILENT)
        )
    store.close()
    if last is not None and last > now() + _CLOCKS_APART:
        ahead = (last - now()).total_seconds()
        remedy = "set the clocks of all machines of the lab by NTP"
        findings.append(Finding("clock", Level.WARNING, f"{ahead:,.0f} s behind another machine's", remedy))
    if silent:
        found = f"{silent} said nothing for {_SILENT.total_seconds() / 60:.0f} minutes"
        findings.append(
            Finding("attempts", Level.WARNING, found, "see jestlab status; launch again to go on")
        )
    return findings


class _Enough(Exception):
    """Rolls a transaction back."""


def _leftovers(lab: Lab) -> Finding:
    """Find what killed processes left behind, and nobody is waiting for."""
    found = list(gc.leftovers(lab, _STALE))
    if not found:
        return Finding("leftovers", Level.OK, "none")
    remedy = "jestlab gc shows them, jestlab gc --delete removes them"
    return Finding("leftovers", Level.WARNING, f"{len(found)} half-made files and locks", remedy)


def _missing_client(executor: str) -> Finding | None:
    """Return what is wrong if an executor is configured, or chosen, and its client is not installed."""
    settings = Settings.find()
    section = getattr(settings, executor)
    missing = missing_client(executor)
    if missing is None or (settings.on != executor and section == type(section)()):
        return None
    found, _, remedy = missing.partition(": ")
    return Finding(executor, Level.BROKEN, found, remedy)


def _vertex() -> Finding:
    if Settings.find().vertex.project is None:
        return Finding("vertex", Level.OK, "not configured")
    code = (
        "import json, google.auth;"
        "found = google.auth.default(scopes=['https://www.googleapis.com/auth/cloud-platform']);"
        "print(json.dumps({'project': found[1]}))"
    )
    answer, problem = _ask(code)
    if answer is None:
        return Finding("vertex", Level.BROKEN, problem, "gcloud auth application-default login")
    return Finding("vertex", Level.OK, f"credentials found, project {Settings.find().vertex.project}")


def _kubernetes() -> Finding:
    settings = Settings.find()
    if settings.on != "kubernetes" and settings.kubernetes == type(settings.kubernetes)():
        return Finding("kubernetes", Level.OK, "not configured")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and settings.kubernetes.context is None:
        return Finding("kubernetes", Level.OK, "inside a cluster")
    import yaml

    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    files = [Path(name).expanduser() for name in named if name] or [Path("~/.kube/config").expanduser()]
    known: list[str] = []
    current = None
    for file in files:
        if file.is_file():
            content: dict[str, Any] = yaml.safe_load(file.read_text()) or {}
            known += [str(context["name"]) for context in content.get("contexts") or ()]
            current = current or content.get("current-context")
    context = settings.kubernetes.context or current
    if context is None:
        return Finding(
            "kubernetes", Level.BROKEN, "no context", "gcloud container clusters get-credentials …"
        )
    if context not in known:
        found = f"no context {context!r} in {', '.join(map(str, files))}"
        return Finding("kubernetes", Level.BROKEN, found, "name one of `kubectl config get-contexts`")
    return Finding("kubernetes", Level.OK, f"context {context}")


def _slurm(lab: Lab) -> Finding | list[Finding]:
    settings = Settings.find()
    configured = settings.on == "slurm" or settings.slurm != type(settings.slurm)()
    from jestlab.platform.launch.executors import slurm_site

    if not configured and not slurm_site.is_here():
        return Finding("slurm", Level.OK, "not configured")
    levels = {True: Level.OK, None: Level.WARNING, False: Level.BROKEN}
    return [
        Finding("slurm", levels[well], found, remedy)
        for well, found, remedy in slurm_site.examine(lab, settings.slurm)
    ]


def _jax() -> Finding:
    code = (
        "import json, jax; devices = jax.devices(); print(json.dumps({'version': jax.__version__,"
        "'backend': jax.default_backend(), 'count': len(devices), 'kind': devices[0].device_kind}))"
    )
    answer, problem = _ask(code)
    if answer is None:
        remedy = "JAX_PLATFORMS=cpu runs without the accelerator; else fix its driver or reinstall jax"
        return Finding("jax", Level.BROKEN, problem, remedy)
    return Finding("jax", Level.OK, "{version}, {count} × {kind} ({backend})".format(**answer))


def _ask(code: str) -> tuple[dict[str, Any] | None, str]:
    """Return what Python code prints as JSON, in a process that may hang or crash; else why not."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
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


_LEVELS = {Level.OK: "green", Level.WARNING: "yellow", Level.BROKEN: "red"}


@click.command(epilog=examples("doctor", "doctor --no-jax --json"))
@click.option("--jax/--no-jax", default=True, help="Whether to check which devices JAX finds.")
@json_option()
@lab_options
def doctor_command(jax: bool, as_json: bool, lab: Lab) -> None:
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
                level = styled(f"{finding.level:8}", _LEVELS.get(finding.level, ""))
                say(level + f" {finding.check:12} {finding.found}{remedy}")
    if as_json:
        print_json(list(map(asdict, findings)))
    if any(finding.level is Level.BROKEN for finding in findings):
        raise SystemExit(1)
