"""What `make install` and the container download is pinned by version and hash, without addresses."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def pins(lock: str) -> dict[str, set[str]]:
    """Name → versions."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), flags=re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_each_line_is_a_pin_with_hashes_and_no_address(lock):
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(" "):
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
        else:
            assert re.fullmatch(r"[a-z0-9.-]+(\[[a-z,]+\])?==\S+( ; .+)? \\", line), line
            assert after.startswith("    --hash="), line


@pytest.mark.parametrize("recipe", [MAKEFILE, DOCKERFILE], ids=["Makefile", "Dockerfile"])
def test_nothing_is_installed_without_hashes(recipe):
    commands = [
        command
        for line in recipe.splitlines()
        for command in line.split("&&")
        if re.search(r"\bpip\b.*\b(install|sync)\b", command) and not line.startswith("#")
    ]
    # PyTorch comes in many builds.
    commands = [command for command in commands if "oracles.txt" not in command]
    assert len(commands) >= 3
    for command in commands:
        # uv checks the hashes of build constraints, too.
        locked = "--no-build-isolation" in command or "--build-constraint requirements.lock" in command
        builds_this = "--no-deps" in command and locked
        assert builds_this or "--require-hashes" in command, command
    assert any("requirements-uv.lock" in command for command in commands)
    assert not re.search(r"uv==|hatchling", recipe)


def test_the_build_backend_is_the_locked_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [backend] = project["build-system"]["requires"]
    name, _, version = backend.partition("==")
    assert pins("requirements.lock")[name] == {version}


def test_locks_of_accelerators_add_only_libtpu_or_cuda_in_the_version_of_jax():
    jax, tpu, gpu = (pins(f"requirements{kind}.lock") for kind in ("", "-tpu", "-cuda"))
    assert set(tpu) == {"libtpu"} and len(tpu["libtpu"]) == len(jax["jax"])
    plugins = {"jax-cuda12-pjrt", "jax-cuda12-plugin"}
    assert {name for name in gpu if not name.startswith("nvidia-")} == plugins
    assert all(gpu[name] == jax["jax"] for name in plugins)


def test_the_container_holds_the_versions_that_tests_run_with():
    everything, contained = pins("requirements.lock"), pins("requirements-worker.lock")
    assert "jax" in contained and "xmanager" not in contained
    assert contained == {name: everything[name] for name in contained}
