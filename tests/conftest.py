"""Settings for every test, made before JAX is imported anywhere."""

import gc
import importlib.util
import itertools
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.browser_support import Opened, open_page, started_browser, tabs

# A busy machine is not a bug.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

# Tests compile much and compute little: so, a step compiles in a sixth of the time. Without the new emitters
# a fusion is not lowered through MLIR; a split count of 1 makes one LLVM module of a program instead of many.
# Flags that the caller gave stay as they are, e.g. XLA_FLAGS=--xla_cpu_max_isa=AVX2.
FAST_COMPILATION = {
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    "--xla_cpu_use_fusion_emitters": "false",
    "--xla_cpu_parallel_codegen_split_count": "1",
}

# What the caller's terminal is like is no matter of tests, nor of the processes that they start.
for _name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(_name, None)

_flags = os.environ.get("XLA_FLAGS", "").split()
_named = {flag.split("=")[0] for flag in _flags}
_flags += [f"{name}={value}" for name, value in FAST_COMPILATION.items() if name not in _named]
os.environ["XLA_FLAGS"] = " ".join(_flags)

# Compiled functions are shared by all test processes, by the workers that tests start, and by later runs.
# JAX's keys hold XLA_FLAGS, so that other flags or another instruction set find other entries.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"jestlab-tests-{os.getuid()}" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

MARKS_BY_FIXTURE = {
    "postgres": "server",
    "postgres_server": "server",
    "browser": "browser",
    "opened": "browser",
    "visited": "browser",
    "whole_cluster": "cluster",
    "slurm_cluster": "cluster",
}
"""Fixture → mark of the tests that use it. Tests that start processes need no mark: see `--no-processes`."""

MARKS_BY_PATH = {
    "process": ("platform/launch/", "platform/lab/test_remote_lab.py", "platform/test_hosts.py"),
    "slow": (
        "analysis/report/",
        "analysis/test_table_and_plot_verbs.py",
        "experiments/test_laion_transfer.py",
        "models/test_execution.py",
        "models/test_flops_against_xla.py",
        "models/test_step_flops.py",
        "models/selection/test_quality.py",
        "models/selection/test_selection_flops.py",
        "models/training/",
        "platform/cli/test_cli_report.py",
        "platform/cli/test_cli_unions.py",
        "platform/test_reports.py",
    ),
}
"""Mark → where it is of all tests."""

LONGEST = (
    "platform/launch/executors/slurm/",
    "platform/launch/executors/kubernetes/",
    "platform/launch/executors/test_executor_contract.py",
    "platform/launch/test_pods.py",
    "platform/cli/test_cli_launching.py",
    "platform/launch/test_copied_labs.py",
    "test_docs.py",
    "models/training/test_devices.py",
    "platform/test_image.py",
    "experiments/test_laion_transfer.py",
    "platform/lab/test_remote_lab.py",
    "models/training/test_step.py",
    "models/training/test_loop.py",
    "platform/test_hosts.py",
    "platform/programs/test_embed_program.py",
    "platform/programs/test_diagnose_program.py",
    "platform/launch/test_faults.py",
    "models/training/test_diagnose.py",
    "platform/launch/test_launch.py",
)
"""Where the tests that take longest are, those of clusters first; parallel test processes start with them."""

ORACLES = ("torch", "transformers")
PROGRAMS = ("git", "uname")
"""What may be started in spite of `--no-processes`."""

REASONS = {
    "torch|transformers": "need PyTorch (make oracles)",
    "chromium|playwright|axe_": "need a browser (make tools)",
    "LaTeX": "need LaTeX (make tools)",
    "no Kubernetes": "need Kubernetes (make cluster)",
    "no Slurm": "need Slurm (make cluster)",
    "no image": "need the container (make cluster-image)",
    "starts a process": "start processes (make test)",
}
"""What the reason of a skip matches → how the summary counts it."""


# Not for the session: while it is there its event loop runs in this thread, and others need one of their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, without a window."""
    with started_browser() as browser:
        yield browser


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens pages, which are closed after the test."""
    with tabs(browser, open_page) as opening:
        yield opening


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-processes", action="store_true", help="skip tests as soon as they start a process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use and by where they are."""
    root = Path(__file__).parent
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("store_url") == "postgresql":
            fixtures.add("postgres")
        for name in fixtures & MARKS_BY_FIXTURE.keys():
            item.add_marker(MARKS_BY_FIXTURE[name])
        path = item.path.relative_to(root).as_posix()
        for mark, places in MARKS_BY_PATH.items():
            if path.startswith(places):
                item.add_marker(mark)
    worker = getattr(items[0].config, "workerinput", None) if items else None
    if worker:
        items[:] = longest_first(items, worker["workercount"])


def longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order tests so that none that takes long is left for the end.

    `--dist worksteal` gives each worker one piece of the list, of equal lengths; whoever is done takes tests
    from the end of another's piece. So the places of `LONGEST` are dealt out to the beginnings of the pieces,
    each place as a whole, because its tests share fixtures.
    """
    root = Path(__file__).parent
    long: list[list[pytest.Item]] = [[] for _ in LONGEST]
    short: list[pytest.Item] = []
    for item in items:
        path = item.path.relative_to(root).as_posix()
        place = next((long[i] for i, start in enumerate(LONGEST) if path.startswith(start)), short)
        place.append(item)
    begun = iter(short)
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        piece = list(itertools.chain.from_iterable(long[worker::workers]))
        size = (len(items) - len(ordered)) // (workers - worker)
        ordered += piece + list(itertools.islice(begun, max(size - len(piece), 0)))
    return ordered + list(begun)


def pytest_collection_finish() -> None:
    """Let Python look for garbage rarely, and not among what was imported: it took an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("oracle") and not all(map(importlib.util.find_spec, ORACLES)):
        pytest.skip("torch or transformers is not installed")
    if item.config.getoption("--no-processes"):
        setattr(subprocess.Popen, "__init__", _skip_process)  # noqa: B010
        setattr(os, "fork", _skip_process)  # noqa: B010


_start_process = subprocess.Popen.__init__


def _skip_process(*arguments, **options):
    """Start a process if it is one of `PROGRAMS`; skip the running test if not."""
    command = arguments[1] if len(arguments) > 1 else options.get("args", ())
    program = command if isinstance(command, str) else next(iter(command), "")
    if Path(str(program).split(" ")[0]).name not in PROGRAMS:
        pytest.skip("starts a process")
    _start_process(*arguments, **options)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, and which command brings it."""
    counts = Counter[str]()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        known = (said for pattern, said in REASONS.items() if re.search(pattern, reason))
        counts[next(known, f"({reason.removeprefix('Skipped: ')})")] += 1
    if counts:
        groups = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        terminalreporter.write_line(f"{counts.total()} skipped: {groups}")
