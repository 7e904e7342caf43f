"""Settings of all tests; they are made before anything imports JAX."""

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

# Tests compile much and compute little. With these flags a step compiles in a sixth of the time: fusions
# aren't lowered through MLIR, and each program is one LLVM module instead of many.
# Flags from the environment take precedence, e.g. XLA_FLAGS=--xla_cpu_max_isa=AVX2.
FAST_COMPILATION = {
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    "--xla_cpu_use_fusion_emitters": "false",
    "--xla_cpu_parallel_codegen_split_count": "1",
}

# Tests, and the processes that they start, don't depend on the caller's terminal.
for _name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(_name, None)

_flags = os.environ.get("XLA_FLAGS", "").split()
_named = {flag.split("=")[0] for flag in _flags}
_flags += [f"{name}={value}" for name, value in FAST_COMPILATION.items() if name not in _named]
os.environ["XLA_FLAGS"] = " ".join(_flags)

# Test processes, the workers that they start, and later runs share compiled functions. JAX's cache keys
# include XLA_FLAGS, so other flags and instruction sets have their own entries.
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

SLOWEST = (
    "test_docs.py",
    "models/training/test_loop.py",
    "models/training/test_step.py",
    "models/training/test_devices.py",
    "platform/launch/executors/slurm/",
    "platform/launch/executors/kubernetes/",
    "platform/test_image.py",
)
"""Files and folders with the slowest tests: each worker of pytest-xdist starts with one of them."""

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


# Not for the session: its event loop runs in this thread, and other tests need their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with started_browser() as browser:
        yield browser


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    """A function that opens pages; they are closed after the test."""
    with tabs(browser, open_page) as opening:
        yield opening


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use; variants for other stores belong to `test-all`."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for name in fixtures & MARKS_BY_FIXTURE.keys():
            item.add_marker(MARKS_BY_FIXTURE[name])
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        is_variant = {"postgresql", "shared"} & {parameters.get("store_url"), parameters.get("database_url")}
        if item.get_closest_marker("cluster") or (
            is_variant and item.get_closest_marker("both_databases") is None
        ):
            item.add_marker("full")
    worker = getattr(items[0].config, "workerinput", None) if items else None
    if worker:
        items[:] = slowest_first(items, worker["workercount"])


def slowest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order tests so that no slow one is left for the end.

    `--dist worksteal` gives each worker one piece of the list, of equal lengths; a worker that has finished
    its piece takes tests from the end of another's. The places in `SLOWEST` are dealt out to the beginnings
    of the pieces, each place as a whole, because its tests share fixtures.
    """
    root = Path(__file__).parent
    slow: list[list[pytest.Item]] = [[] for _ in SLOWEST]
    fast: list[pytest.Item] = []
    for item in items:
        path = item.path.relative_to(root).as_posix()
        place = next((slow[i] for i, start in enumerate(SLOWEST) if path.startswith(start)), fast)
        place.append(item)
    remaining = iter(fast)
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        piece = list(itertools.chain.from_iterable(slow[worker::workers]))
        size = (len(items) - len(ordered)) // (workers - worker)
        ordered += piece + list(itertools.islice(remaining, max(size - len(piece), 0)))
    return ordered + list(remaining)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect garbage rarely, and never among imported modules: that took an eighth of the time."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("oracle") and not all(map(importlib.util.find_spec, ORACLES)):
        pytest.skip("torch or transformers is not installed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were skipped, and the command that installs what they need."""
    counts = Counter[str]()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        known = (text for pattern, text in REASONS.items() if re.search(pattern, reason))
        counts[next(known, f"({reason.removeprefix('Skipped: ')})")] += 1
    if counts:
        groups = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        terminalreporter.write_line(f"{counts.total()} skipped: {groups}")
