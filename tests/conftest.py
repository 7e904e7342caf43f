"""Settings for every test, made before JAX is imported anywhere."""

import gc
import importlib.util
import itertools
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.browser_support import Opened, open_page, started_browser, tabs

# The examples of property tests: few and always the same ones, or many and new ones (`make test-all`).
# A busy machine is not a bug, hence no deadline.
settings.register_profile(
    "default", deadline=None, max_examples=20, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
settings.register_profile("full", settings.get_profile("default"), max_examples=100, derandomize=False)
settings.load_profile("default")

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
    "browser": "browser",
    "opened": "browser",
    "visited": "browser",
    "whole_cluster": "cluster",
    "slurm_cluster": "cluster",
}
"""Fixture → mark of the tests that use it."""

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

REASONS = {
    "torch|transformers": "need PyTorch (make oracles)",
    "chromium|playwright|axe_": "need a browser (make tools)",
    "LaTeX": "need LaTeX (make tools)",
    "no Kubernetes": "need Kubernetes (make cluster)",
    "no Slurm": "need Slurm (make cluster)",
    "no image": "need the container (make cluster-image)",
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


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use; PostgreSQL's variant of a test belongs to `make test-all`."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for name in fixtures & MARKS_BY_FIXTURE.keys():
            item.add_marker(MARKS_BY_FIXTURE[name])
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        is_variant = "postgresql" in (parameters.get("store_url"), parameters.get("database_url"))
        if item.get_closest_marker("cluster") or (
            is_variant and item.get_closest_marker("both_databases") is None
        ):
            item.add_marker("full")
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
