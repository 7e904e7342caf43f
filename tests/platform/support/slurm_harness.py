"""The harness of Slurm: real jobs of a real cluster, controlled by files.

Slurm's commands go through `UnreliableCommands`, where a test can let them fail. Jobs are submitted held, so
that they wait until a test lets them begin.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from executor_harnesses import STORE, job
from slurm_support import PATH, SlurmCluster, why_not
from tests.waiting import wait_until

from jestlab.platform.contracts.executors import marks_of
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executor import Job, LaunchedJob
from jestlab.platform.launch.executors.slurm import Slurm
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import Slurm as SlurmOptions

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

# Takes the place of Python in every job: files in a folder control it by the name of the job. When it is
# asked to stop, it continues until the file `stopping` exists.
_OBEDIENT = """#!/bin/sh
me="$HARNESS/$NAME"
trap 'asked=1; touch "$me.asked"' TERM
touch "$me.began"
while :; do
    if [ -f "$me.lines" ]; then cat "$me.lines"; rm "$me.lines"; fi
    if [ -f "$me.code" ]; then
        read code < "$me.code"
        if [ "$code" = 137 ]; then kill -9 $$; fi
        exit "$code"
    fi
    if [ -f "$HARNESS/over" ]; then exit 0; fi
    if [ -n "$asked" ] && [ -f "$HARNESS/stopping" ]; then rm "$me.asked"; exit 143; fi
    sleep 0.05
done
"""

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
def running(folder: Path, *, accounting: bool = False) -> Iterator[SlurmCluster]:
    """Context with a cluster that runs; without its executables the test is skipped."""
    if why := why_not(accounting=accounting):
        pytest.skip(f"no Slurm: {why}")
    made = SlurmCluster(folder, accounting=accounting)
    try:
        made.start()
        yield made
    finally:
        made.close()


class UnreliableCommands:
    """A folder of Slurm's commands, which fail as a test wants it, and else are the real ones."""

    names = ("sbatch", "squeue", "scontrol", "scancel", "sacct")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "faults").mkdir(parents=True)
        real = Path(shutil.which("sbatch", path=PATH) or "").parent
        for name in self.names:
            (folder / name).write_text(_UNRELIABLE.format(real=real))
            (folder / name).chmod(0o755)

    def spoil(self, said: list[str]) -> None:
        """Let the next commands fail, each with these words, and no further ones."""
        for file in (self.folder / "faults").iterdir():
            file.unlink()
        for number, words in enumerate(said):
            (self.folder / "faults" / f"{number:03d}").write_text(f"{words}\n")

    def lose_an_answer(self) -> None:
        """Let the next `sbatch` submit its job, and fail."""
        (self.folder / "lost").touch()

    def delay(self, seconds: float) -> None:
        """Let every command begin so late."""
        (self.folder / "delay").write_text(f"{seconds}\n")


class SlurmHarness:
    """Sets scenes on a cluster, in another lab."""

    remote = True
    names_are_unique = False
    remembers_removed = True
    logs_are_asked_for = False
    variables_are_shown = False

    def __init__(self, cluster: SlurmCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.lab = Lab.find(folder / "lab")
        self.lab.root.mkdir()
        self._folder = folder / "jobs"
        self._folder.mkdir()
        self._python = self._folder / "python"
        self._python.write_text(_OBEDIENT)
        self._python.chmod(0o755)
        self.commands = UnreliableCommands(folder / "commands")
        monkeypatch.setenv("PATH", f"{self.commands.folder}:{PATH}")

    def executor(
        self, options: SlurmOptions | None = None, *, answer_seconds: float = 60.0, **resources: Any
    ) -> Slurm:
        obedient = SlurmOptions(python=str(self._python), options=("--hold",))
        laid = (options or SlurmOptions()).laid_over(obedient)
        return Slurm(self.lab, Resources(**resources), laid, answer_seconds=answer_seconds)

    def job(self, name: str, **changes: Any) -> Job:
        told = {"JESTLAB_STORE": STORE, "TZ": "UTC", "NAME": name, "HARNESS": str(self._folder)}
        log, marks = self.lab.root / f"{name}.txt", marks_of(f"{self._folder}/{name}")
        return job(name, environment=told, log=log, marks=marks, **changes)

    def count(self) -> int:
        return len(self.cluster.jobs())

    def run(self, started: LaunchedJob) -> None:
        self.cluster.tool("scontrol", "release", id_of(started))
        wait_until(lambda: (self._folder / f"{self._name(started)}.began").exists())

    def end(self, started: LaunchedJob, code: int) -> None:
        self._tell(f"{self._name(started)}.code", str(code))
        self._wait_until_over(started)

    def preempt(self, started: LaunchedJob) -> None:
        """Take all nodes for a job of the partition `high`."""
        (self._folder / "stopping").touch()
        self.cluster.preempt()
        self._wait_until_over(started)

    def vanish(self, started: LaunchedJob) -> None:
        """Cancel a job behind the launcher's back."""
        self.cluster.tool("scancel", id_of(started))
        self._wait_until_over(started)

    def finish_stop(self) -> None:
        (self._folder / "stopping").touch()
        wait_until(lambda: not any(self._folder.glob("*.asked")))

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        file = f"{self._name(started)}.lines"
        self._tell(file, "".join(f"{line}\n" for line in lines))
        wait_until(lambda: not (self._folder / file).exists())

    def spoil(self, *statuses: int) -> None:
        self.commands.spoil([SAID[status] for status in statuses])

    def said(self, status: int) -> str:
        return SAID[status]

    def lose_an_answer(self) -> None:
        self.commands.lose_an_answer()

    def answer_late(self, seconds: float) -> None:
        self.commands.delay(seconds)

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

    def _tell(self, file: str, text: str) -> None:
        ready = self._folder / "ready"
        ready.write_text(f"{text}\n" if file.endswith(".code") else text)
        ready.rename(self._folder / file)


def id_of(started: LaunchedJob) -> str:
    """Return Slurm's id of a job."""
    return started.handle.split(":")[1]
