"""`jestlab doctor`: check the installation and the lab, and name a remedy for each problem."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import click
from sqlalchemy import func, select

from jestlab.analysis.connection import SCHEMA
from jestlab.analysis.shared import is_shared
from jestlab.analysis.units import duration
from jestlab.platform.cli.options import examples, lab_json_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.dependencies import EXTRAS, LAUNCHING, NO_RECORD, missing
from jestlab.platform.errors import UserError
from jestlab.platform.lab.filesystem import examine
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import path as settings_path
from jestlab.platform.lab.sync import Bucket
from jestlab.platform.logs import one_line
from jestlab.platform.render import styled, table
from jestlab.platform.store import provenance, schema
from jestlab.platform.store.address import parse_url, shown_url, sqlite_file
from jestlab.platform.store.rows import insert, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, LauncherRow
from jestlab.platform.words import counted

PROCESS_SECONDS = 60.0
"""Time limit of a check that runs in a separate process."""

_LOW_DISK_BYTES, _FULL_DISK_BYTES = 5e9, 2e8  # free space below which to warn, or to fail
_CLOCK_SKEW = timedelta(minutes=1)
_STORES = {"sqlite": "SQLite", "shared": "a store in the shared folder", "postgresql": "PostgreSQL"}
_ADDRESSES = {"shared": "shared", "postgresql": "postgresql://user@host/database"}  # values of --store
_STYLES = {"ok": "green", "warning": "yellow", "broken": "red"}


class CheckResult(NamedTuple):
    """The result of a check. The remedy is empty if everything is fine."""

    level: Literal["ok", "warning", "broken"]
    found: str
    remedy: str = ""


@click.command(epilog=examples("doctor", "doctor --no-jax --json"))
@click.option("--jax/--no-jax", default=True, help="Whether to check which devices JAX finds, which is slow.")
@lab_json_options()
def doctor_command(jax: bool, as_json: bool, lab: Lab) -> int:
    """Check packages, settings, the lab, executors, and JAX, and show how to fix each problem.

    Exit code: 0 if nothing is broken, otherwise 1. Warnings do not count.
    """
    found = []
    for check, finding in run_checks(lab, jax):
        found.append({"check": check, **finding._asdict()})
        if not as_json:
            level = styled(f"{finding.level:8}", _STYLES[finding.level])
            say(table(("", "", ""), [(level, f"{check:12}", ": ".join(filter(None, finding[1:])))]))
    if as_json:
        print_json(found)
    return 1 if any(each["level"] == "broken" for each in found) else 0


def run_checks(lab: Lab, jax: bool = True) -> Iterator[tuple[str, CheckResult]]:
    """Yield the name and result of each check. Errors become results. The check of JAX may take a minute."""
    for name, check in (_CHECKS | ({"jax": _jax} if jax else {})).items():
        try:
            yield from ((name, finding) for finding in check(lab))
        except UserError as error:
            yield name, CheckResult("broken", "not usable", str(error))
        except Exception as error:  # a bug in one check must not end the others
            text = " ".join(f"{type(error).__name__}: {error}".split())
            yield name, CheckResult("broken", "check failed", text)


# ---- the installation


def _packages(lab: Lab) -> Iterator[CheckResult]:
    """Check that the required packages are installed in the required versions."""
    from packaging.requirements import Requirement

    required = [Requirement(text) for text in metadata.requires("jestlab") or ()]
    required = [each for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]
    known = provenance.versions([each.name for each in required])
    wrong = [
        each
        for each in required
        if each.name not in known or not each.specifier.contains(known[each.name], prereleases=True)
    ]
    found = ", ".join(f"{each.name} {known.get(each.name, 'missing')}" for each in wrong)
    remedy = "pip install " + " ".join(f"'{each.name}{each.specifier}'" for each in wrong)
    if not wrong:
        yield CheckResult("ok", f"all {len(required)} as required")
    elif all(each.name in LAUNCHING and each.name not in known for each in wrong):
        yield CheckResult("warning", f"{found}: only workers run without them", remedy)
    else:
        yield CheckResult("broken", found, remedy)


def _extras(lab: Lab) -> Iterator[CheckResult]:
    """List the extras that are installed, and those that aren't."""
    absent = [extra for extra in EXTRAS if missing(extra)]
    present = ", ".join(extra for extra in EXTRAS if extra not in absent) or "none"
    yield CheckResult("ok", present, f"pip install 'jestlab[{','.join(absent)}]' for more" if absent else "")
    if "xmanager" in absent:
        yield CheckResult("ok", *NO_RECORD.split(": "))


def _settings(lab: Lab) -> Iterator[CheckResult]:
    place, settings = settings_path(), Settings.find()
    found = f"{place}, runs on {settings.on or 'this machine'}" if place.exists() else f"none at {place}"
    yield CheckResult("ok", found)


def _notify(lab: Lab) -> Iterator[CheckResult]:
    """Check that messages can be sent."""
    if services := Settings.find().notify:
        message = missing("notify")
        yield CheckResult("warning" if message else "ok", counted(len(services), "service"), message or "")


def _jax(lab: Lab) -> Iterator[CheckResult]:
    """List JAX's devices in a separate process, because JAX may hang or crash."""
    if missing("jax"):
        yield CheckResult("ok", "not installed")
        return
    code = (
        "import jax; devices = jax.devices(); "
        "print(f'{jax.__version__}, {len(devices)} × {devices[0].device_kind} ({jax.default_backend()})')"
    )
    remedy = "set JAX_PLATFORMS=cpu to run without the accelerator; else fix its driver or reinstall jax"
    try:
        done = subprocess.run(
            [sys.executable, "-X", "utf8", "-c", code], stdin=subprocess.DEVNULL, capture_output=True,
            encoding="utf-8", errors="replace", timeout=PROCESS_SECONDS, check=True,
        )  # fmt: skip
        yield CheckResult("ok", done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        yield CheckResult("broken", f"no answer within {PROCESS_SECONDS:.0f} s", remedy)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        yield CheckResult("broken", lines[-1][:300], remedy)


# ---- the lab


def _folder(lab: Lab) -> Iterator[CheckResult]:
    place = _nearest_existing(lab.root)
    if place.is_dir() and os.access(place, os.R_OK | os.W_OK | os.X_OK):
        yield CheckResult("ok", str(lab.root) if place == lab.root else f"{lab.root}, not created yet")
    else:
        yield CheckResult("broken", f"{place} is not a writable folder", "choose another --root")


def _file_system(lab: Lab) -> Iterator[CheckResult]:
    """Compare the abilities of the lab's file system with the requirements of its store."""
    if lab.remote is not None:
        return
    try:
        examined = examine(_nearest_existing(lab.root))
    except OSError:  # the check of the folder reports it
        return
    missing = f" without {' and '.join(examined.missing)}" if examined.missing else ""
    found = f"{examined.network or 'a disk of this machine'}{missing}, fits {_STORES[examined.store]}"
    file = sqlite_file(parse_url(lab.store_url))
    used = "postgresql" if file is None else "shared" if is_shared(file) else "sqlite"
    if used == "postgresql" or examined.store in ("sqlite", used):
        yield CheckResult("ok", found)
    else:
        remedy = f"--store {_ADDRESSES[examined.store]}"
        yield CheckResult("warning", f"{found}, not {_STORES[used]}", remedy)


def _bucket(lab: Lab) -> Iterator[CheckResult]:
    """Write, read, and delete an object in the lab's bucket."""
    if lab.remote is None:
        return
    bucket, name = Bucket(lab.remote), f".doctor-{uuid.uuid4().hex}"
    bucket.write(name, b"test")
    bucket.read(name)
    bucket.delete([name])
    yield CheckResult("ok", f"{lab.remote}, writable")


def _disk(lab: Lab) -> Iterator[CheckResult]:
    free = shutil.disk_usage(_nearest_existing(lab.root)).free
    found, remedy = f"{free / 1e9:,.1f} GB free at {lab.root}", "jestlab gc lists unreferenced files"
    if free >= _LOW_DISK_BYTES:
        yield CheckResult("ok", found)
    else:
        yield CheckResult("warning" if free >= _FULL_DISK_BYTES else "broken", found, remedy)


def _nearest_existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _store(lab: Lab) -> Iterator[CheckResult]:
    """Check that the store can be read and written, and that no heartbeat in it is in the future.

    The test row is rolled back.
    """
    address = shown_url(parse_url(lab.store_url))
    try:
        existing = Store.open_readonly(lab.store_url)
    except schema.EmptyStore:
        existing = None
    if existing is None:
        yield CheckResult("ok", f"{address}, created by the first launch")
        return
    existing.close()
    with closing(Store.open(lab.store_url, create=False)) as store, store.writing() as connection:
        with connection.begin_nested() as change:
            name = f"doctor {uuid.uuid4()}"
            connection.execute(insert(connection, LauncherRow).values(name=name, heartbeat_at=now()))
            change.rollback()
        last = connection.scalar(select(func.max(AttemptRow.heartbeat_at)))
    yield CheckResult("ok", f"{address}, schema {SCHEMA}, writable")
    if last is not None and last > now() + _CLOCK_SKEW:
        found = f"the clock is {duration((last - now()).total_seconds() / 3600)} behind another machine's"
        yield CheckResult("warning", found, "set the clocks of all machines of the lab by NTP")


# ---- executors


def _is_configured(executor: str) -> bool:
    settings = Settings.find()
    section = getattr(settings, executor)
    return settings.on == executor or bool(section != type(section)())


def _cloud(executor: str, check: Callable[[], str], remedy: str) -> Iterator[CheckResult]:
    """Check an executor, if it is configured, with a function that describes it or raises an error."""
    if not _is_configured(executor):
        yield CheckResult("ok", "not configured")
    elif (message := missing(executor)) is not None:
        found, _, command = message.partition(": ")
        yield CheckResult("broken", found, command)
    else:
        try:
            yield CheckResult("ok", check())
        except Exception as error:
            yield CheckResult("broken", one_line(str(error)), remedy)


def _vertex() -> str:
    import google.auth

    google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    return f"credentials for Google Cloud, project {Settings.find().vertex.project}"


def _kubernetes() -> str:
    from kubernetes import config

    name = Settings.find().kubernetes.context
    if os.environ.get("KUBERNETES_SERVICE_HOST") and name is None:
        return "inside a cluster"
    config.load_kube_config(context=name)
    return f"context {name or config.list_kube_config_contexts()[1]['name']}"


def _slurm(lab: Lab) -> Iterator[CheckResult]:
    from jestlab.platform.launch.executors import slurm_tools

    if not _is_configured("slurm") and not slurm_tools.is_here():
        yield CheckResult("ok", "not configured")
        return
    for is_ok, found, remedy in slurm_tools.examine(lab, Settings.find().slurm):
        yield CheckResult("ok" if is_ok else "warning" if is_ok is None else "broken", found, remedy)


_CHECKS: dict[str, Callable[[Lab], Iterator[CheckResult]]] = {
    "packages": _packages,
    "extras": _extras,
    "config file": _settings,
    "notify": _notify,
    "folder": _folder,
    "file system": _file_system,
    "disk": _disk,
    "bucket": _bucket,
    "store": _store,
    "vertex": lambda lab: _cloud("vertex", _vertex, "gcloud auth application-default login"),
    "kubernetes": lambda lab: _cloud(
        "kubernetes", _kubernetes, "name one of `kubectl config get-contexts` in the config file"
    ),
    "slurm": _slurm,
}
