"""The harness of Slurm: real jobs of a real cluster, controlled by files.

Each of Slurm's commands has a script before it, which fails as a test wants it. Jobs are submitted held, so
that they wait until a test lets them begin.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from executor_harnesses import SAVES, STORE, Told, job
from slurm_support import PATH, SlurmCluster, why_not
from tests.waiting import wait_until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import Job, LaunchedJob
from jestlab.platform.launch.executors.slurm import SlurmExecutor
from jestlab.platform.spec.resources import Resources, SlurmOptions
from jestlab.testing.executors import key_of

SAID = {
    400: "Batch job submission failed: Invalid partition name specified",
    401: "Protocol authentication error",
    403: "Access/permission denied",
    404: "Batch job submission failed: Invalid qos specification",
    422: "Batch job submission failed: Requested node configuration is not available",
    429: "Resource temporarily unavailable",
    500: "Zero Bytes were transmitted or received",
    503: "Slurm backup controller in standby mode",
}
"""What Slurm says where an API on the web would answer with these statuses."""

# Stands before each of Slurm's commands.
_UNRELIABLE = """#!/bin/sh
here=${{0%/*}} name=${{0##*/}}
if [ -f "$here/delay" ]; then read delay < "$here/delay"; sleep "$delay"; fi
for fault in "$here"/faults/*; do
    [ -f "$fault" ] || break
    read said < "$fault"; rm "$fault"
    echo "$name: error: $said" >&2
    exit 1
done
if [ "$name" = sbatch ] && [ -f "$here/lost" ]; then
    rm "$here/lost"
    {real}/sbatch "$@" >/dev/null
    echo "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received" >&2
    exit 1
fi
exec {real}/"$name" "$@"
"""


@contextmanager
def running(made: SlurmCluster) -> Iterator[SlurmCluster]:
    """Context with a cluster that runs; without its executables the test is skipped."""
    if why := why_not(made.executables):
        pytest.skip(f"no Slurm: {why}")
    try:
        made.start()
        yield made
    finally:
        made.close()


class SlurmHarness:
    remote = True
    names_are_unique = False
    remembers_removed = True
    logs_are_asked_for = False
    variables_are_shown = False

    def __init__(self, cluster: SlurmCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.lab = Lab.find(folder / "lab")
        self.lab.root.mkdir()
        self._told = Told(folder / "jobs", trap=SAVES)
        self._folder = self._told.folder
        self._commands = folder / "commands"
        (self._commands / "faults").mkdir(parents=True)
        real = Path(shutil.which("sbatch", path=PATH) or "").parent
        for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct"):
            (self._commands / name).write_text(_UNRELIABLE.format(real=real))
            (self._commands / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{self._commands}:{PATH}")

    def executor(
        self, options: SlurmOptions | None = None, *, answer_seconds: float = 60.0, **resources: Any
    ) -> SlurmExecutor:
        obedient = SlurmOptions(python=str(self._told.program), options=("--hold",))
        laid = (options or SlurmOptions()).laid_over(obedient)
        made = SlurmExecutor(self.lab, Resources(**resources), laid)
        made.answer_seconds = answer_seconds
        return made

    def job(self, name: str, **changes: Any) -> Job:
        told = {"JESTLAB_STORE": STORE, "TZ": "UTC", "NAME": name, "HARNESS": str(self._folder)}
        log, key = self.lab.root / f"{name}.txt", key_of(f"{self._folder}/{name}")
        return job(name, environment=told, log=log, key=key, **changes)

    def count(self) -> int:
        return len(self.cluster.jobs())

    def run(self, started: LaunchedJob) -> None:
        self.cluster.tool("scontrol", "release", id_of(started))
        wait_until(lambda: (self._folder / f"{self._name(started)}.began").exists())

    def end(self, started: LaunchedJob, code: int) -> None:
        self._told.end(self._name(started), code)
        self._wait_until_over(started)

    def preempt(self, started: LaunchedJob) -> None:
        """Take all nodes for a job of the partition `high`."""
        (self._folder / "stopping").touch()
        self.cluster.preempt()
        self._wait_until_over(started)

    def vanish(self, started: LaunchedJob) -> None:
        self.cluster.tool("scancel", id_of(started))
        self._wait_until_over(started)

    def finish_stop(self) -> None:
        (self._folder / "stopping").touch()
        wait_until(lambda: not any(self._folder.glob("*.asked")))

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        self._told.print(self._name(started), lines)

    def spoil(self, *statuses: int) -> None:
        for file in (self._commands / "faults").iterdir():
            file.unlink()
        for number, status in enumerate(statuses):
            (self._commands / "faults" / f"{number:03d}").write_text(f"{SAID[status]}\n")

    def said(self, status: int) -> str:
        return SAID[status]

    def lose_an_answer(self) -> None:
        (self._commands / "lost").touch()

    def answer_late(self, seconds: float) -> None:
        (self._commands / "delay").write_text(f"{seconds}\n")

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.cluster.wait_until_saved()
        self.cluster.kill("slurmctld")
        try:
            yield
        finally:
            self.cluster.begin("slurmctld")
            self.cluster.wait_until_answers()

    def shown(self) -> str:
        shown = [self.cluster.tool("squeue", "-O", "all"), self.cluster.tool("scontrol", "-o", "show", "job")]
        for id_ in self.cluster.jobs():
            shown.append(self.cluster.tool("scontrol", "write", "batch_script", id_, "-"))
        shown.append(subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout)
        assert all(shown)
        stored = [file for file in (self.cluster.folder / "state").rglob("*") if file.is_file()]
        return "\n".join([*shown, *(file.read_bytes().decode(errors="replace") for file in stored)])

    def close(self) -> None:
        (self._folder / "over").touch()

    def _name(self, started: LaunchedJob) -> str:
        return Path(started.handle.split(":", 3)[3]).stem

    def _wait_until_over(self, started: LaunchedJob) -> None:
        wait_until(lambda: id_of(started) not in self.cluster.jobs())


def id_of(started: LaunchedJob) -> str:
    return started.handle.split(":")[1]
