"""Measure jestlab on one NVIDIA GPU within nine minutes, without a network.

    make gpu                                              # or, without make:
    python tests/benchmarks/gpu/run.py --out gpu-results
    python tests/benchmarks/gpu/run.py --toy --out FOLDER # all parts at toy sizes, on the CPU

Each part is a separate process with a time limit, so that each fails alone. The most important parts run
first; those that would start too late are reported as not run. FOLDER gets results.json, tables.md, and a log
of each part. Neither an installed jestlab nor a package index is needed: the code is that of this checkout,
and missing packages are installed from .wheels (`make gpu-wheels`) into a temporary folder.

Exit code: 0 if all parts are ok, else 1.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.benchmarks.support import print_table

ROOT = Path(__file__).parents[3]
WHEELS = ROOT / ".wheels"
CODE = [ROOT, *(ROOT / name for name in ("experiments", "platform", "models", "analysis"))]
TOY_LIMIT_SECONDS = 300.0
TOY_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Toy sizes compile much and compute little. JAX 0.10 and 0.11 know these flags; an unknown one is fatal."""


@dataclass
class Job:
    """A process of a part, and its result."""

    part: str
    case: list[str] = field(default_factory=list)
    limit_seconds: float = 60.0
    least_seconds: float = 15.0  # it doesn't start with less time left
    state: str = "not run"  # or "ok", "failed"
    error: str = "no time left"
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The part and its case."""
        return " ".join([self.part, *self.case])


def jobs(toy: bool) -> list[Job]:
    """Return all processes, the most important ones first."""
    sizes = [(200, 16)] if toy else [(20_480, 768), (20_480, 64), (163_840, 768), (163_840, 64)]
    shapes = (
        ["toy"] if toy else ["S/16, b = 64", "S/16, b = 64, 4 microbatches", "B/16, b = 128, 2 microbatches"]
    )
    return [
        *(Job("correctness", [library], 75) for library in ("torch", "jax")),
        *(
            Job("selection", [library, str(super_batch), str(width)], 45)
            for super_batch, width in sizes
            for library in ("torch", "jax")
        ),
        *(Job("steps", [library], 150) for library in ("torch", "jax")),
        *(Job("memory", [shape], 45) for shape in shapes),
        Job("reuse", [], 75),
        Job("quickstart", [], 400, least_seconds=90),
    ]


def environment(temporary: Path, toy: bool) -> dict[str, str]:
    """Return the variables of all parts: where the code and the missing packages are, and the device."""
    paths = [*CODE, temporary / "site", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    given = {
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if str(path)),
        "PYTHONUNBUFFERED": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # so that PyTorch has memory in the same process
        "XLA_CLIENT_MEM_FRACTION": "0.92",
        "JESTLAB_CONFIG": os.devnull,  # not the user's settings
    }
    if toy:
        given |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        given |= {"XLA_FLAGS": os.environ.get("XLA_FLAGS", TOY_FLAGS)}
    return {name: x for name, x in os.environ.items() if name != "XLA_PYTHON_CLIENT_MEM_FRACTION"} | given


def install(site: Path) -> None:
    """Make jestlab's metadata, and install the wheels of packages that this Python lacks.

    Raises:
        RuntimeError: A wheel can't be installed; the message is pip's.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = site / f"jestlab-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: jestlab\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    points = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in found.items())])
        for group, found in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    there = {canonical(found.name) for found in importlib.metadata.distributions()}
    wheels = [
        wheel for wheel in sorted(WHEELS.glob("*.whl")) if canonical(wheel.name.split("-")[0]) not in there
    ]
    if wheels:
        options: list[str | Path] = [
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--no-cache-dir",
            "--target",
            site,
        ]
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, *wheels]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(last_line(done.stderr))
    print(f"{len(wheels)} packages installed from {WHEELS.name}", file=sys.stderr)


def canonical(name: str) -> str:
    """Return the normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def last_line(text: str) -> str:
    """Return the last line that isn't empty, which has the message of a traceback."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")[:300]


def work(job: Job, out: Path, variables: dict[str, str], deadline: float, toy: bool) -> None:
    """Run a job within its limit and the time that is left, and record its result."""
    limit = min(TOY_LIMIT_SECONDS if toy else job.limit_seconds, deadline - time.monotonic())
    if limit < job.least_seconds:
        return
    stem = re.sub(r"\W+", "-", job.name)
    rows, log = out / f"{stem}.jsonl", out / f"{stem}.log"
    command = [sys.executable, "-m", f"tests.benchmarks.gpu.{job.part}", *job.case]
    command += ["--out", str(rows), "--seconds", str(limit), *(["--toy"] if toy else [])]
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=file, stderr=file, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also its children
        process.wait()
    job.seconds = round(time.monotonic() - start, 1)
    if rows.exists():
        job.rows = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
        rows.unlink()
    wrong = [row["error"] for row in job.rows if "error" in row]
    if code is None:
        job.state, job.error = "failed", f"stopped at its time limit of {limit:.0f} s"
    elif code or wrong:
        job.state = "failed"
        job.error = "; ".join(wrong) or f"exit code {code}: {last_line(log.read_text(errors='replace'))}"
    elif not job.rows:
        job.state, job.error = "failed", "it measured nothing"
    else:
        job.state, job.error = "ok", ""


def machine() -> dict[str, Any]:
    """Return the GPU, its driver, and the versions of Python and of the array libraries."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        gpu = ""
    versions = {}
    for name in ("torch", "triton", "jax", "jaxlib", "flax", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {"gpu": gpu or "none", "python": platform.python_version(), "versions": versions}


def tables(found: list[Job], about: str) -> Iterator[str]:
    """Yield a table for each part, in the form of BENCHMARKS.md, and one of all processes."""
    for part, group in groupby(found, key=lambda job: job.part):
        rows = [row for job in group for row in job.rows]
        columns = list(dict.fromkeys(name for row in rows for name, value in row.items() if is_cell(value)))
        if columns:
            yield table(
                f"{part}; {about}", columns, [[cell(row.get(name)) for name in columns] for row in rows]
            )
    states = [(job.name, job.state, f"{job.seconds:.0f}", job.error) for job in found]
    yield table(f"processes; {about}", ("process", "state", "s", "why"), states)


def table(about: str, columns: Any, rows: Any) -> str:
    """Return a table as text."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print_table(about, columns, rows)
    return text.getvalue()


def is_cell(value: Any) -> bool:
    """Return whether a value has a place in a table; curves and missing values don't."""
    return isinstance(value, str | int | float)


def cell(value: Any) -> str:
    """Return the text of a cell."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def main() -> None:
    """Run all parts, and write the results after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "gpu-results", help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9.0, help="limit of everything together")
    parser.add_argument("--toy", action="store_true", help="toy sizes, on the CPU")
    parser.add_argument("--only", nargs="*", metavar="PART", help="run these parts only")
    options = parser.parse_args()
    start = time.monotonic()
    deadline = start + 60.0 * options.minutes
    chosen = [job for job in jobs(options.toy) if not options.only or job.part in options.only]
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    here = machine() | {"toy": options.toy, "date": time.strftime("%Y-%m-%d")}
    versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items())
    about = f"GPU: {here['gpu']}; {versions}" + ("; toy sizes on the CPU" if options.toy else "")

    def write() -> None:
        seconds = round(time.monotonic() - start, 1)
        results = here | {"seconds": seconds, "jobs": [asdict(job) for job in chosen]}
        (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
        (out / "tables.md").write_text("\n".join(tables(chosen, about)), encoding="utf-8")

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        temporary = Path(name)
        variables = environment(temporary, options.toy)
        try:
            install(temporary / "site")
        except RuntimeError as error:
            print(f"packages of {WHEELS.name} can't be installed: {error}", file=sys.stderr)
            chosen.insert(0, Job("packages", state="failed", error=str(error)))

        def run(job: Job) -> Job:
            if job.part != "packages":
                work(job, out, variables, deadline, options.toy)
                print(f"{job.name}: {job.state} {job.seconds:.0f} s {job.error}", file=sys.stderr, flush=True)
            return job

        # At toy sizes two processes share the CPU. On the GPU each is alone.
        with ThreadPoolExecutor(2 if options.toy else 1) as pool:
            for _ in pool.map(run, chosen):
                write()
    write()
    print((out / "tables.md").read_text(encoding="utf-8"))
    sys.exit(int(any(job.state != "ok" for job in chosen)))


if __name__ == "__main__":
    main()
