"""What attempts record of code: only jestlab's own checkout, without secrets, and what their user wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import labs_support as labs
import pytest

from jestlab.platform.store import checkout, provenance

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq5Tk0Vq1kK0m2w8v2\n-----END RSA PRIVATE KEY-----"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


def made(root: Path, place: str = "platform/jestlab/platform", ignored: str = "") -> Path:
    """A repository with jestlab's code in one of its folders, as its first commit has them."""
    code = root / place
    code.mkdir(parents=True)
    (code / "worker.py").write_text("steps = 4\n")
    (root / "notes.txt").write_text("nothing\n")
    (root / ".gitignore").write_text(ignored)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return code


def test_a_checkout_of_jestlab_is_recorded(tmp_path):
    code = made(tmp_path)
    about = provenance.collect(code)
    assert about.git_commit == git(tmp_path, "rev-parse", "HEAD").strip()
    assert about.git_patch is None
    (code / "worker.py").write_text("steps = 5\n")
    assert "-steps = 4\n+steps = 5" in str(provenance.collect(code).git_patch)


@pytest.mark.parametrize(
    ("place", "ignored"),
    [
        (".venv/lib/python3.11/site-packages/jestlab/platform", ".venv"),
        (".venv/lib/python3.11/site-packages/jestlab/platform", ""),  # somebody committed it
        ("platform/jestlab/platform", "platform"),
    ],
)
def test_a_repository_that_only_holds_an_installation_is_not(tmp_path, place, ignored):
    """Its commit says nothing about jestlab's code, and its changes are none of our business."""
    code = made(tmp_path, place, ignored)
    (tmp_path / "notes.txt").write_text("my_password = 'correct-horse'\n")
    about = provenance.collect(code)
    assert (about.git_commit, about.git_patch) == (None, None)


def test_a_checkout_within_another_project_is_recorded_alone(tmp_path):
    code = made(tmp_path, "third_party/jestlab/platform/jestlab/platform")
    (tmp_path / "notes.txt").write_text("private\n")
    (code / "worker.py").write_text("steps = 5\n")
    patch = str(provenance.collect(code).git_patch)
    assert "+steps = 5" in patch
    assert "private" not in patch
    found = checkout.Checkout.of(code)
    assert found is not None
    assert found.changed() == ["third_party/jestlab/platform/jestlab/platform/worker.py"]


def test_known_secrets_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_STORE", "postgresql://lab:open%20sesame@db.example/results")
    monkeypatch.setenv("SOME_API_TOKEN", "hunter2hunter2")
    code = made(tmp_path)
    lines = [
        "connect('open sesame')",
        "url = 'https://ada:xyzzy-4711@files.example/x'",
        "login('hunter2hunter2')",
        "steps = 5",
    ]
    (code / "worker.py").write_text("\n".join(lines))
    patch = provenance.collect(code).git_patch or ""
    assert "+connect('***')\n+url = 'https://***@files.example/x'\n+login('***')\n+steps = 5" in patch


@pytest.mark.parametrize(
    "secret",
    [
        "password = 'hunter22hunter22'",
        "AKIAIOSFODNN7EXAMPLE",
        "export TOKEN=ghp_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789",
        'slack = "xoxb-123456789012-1234567890123-abcdefghijABCDEFGHIJabcd"',
        'client = OpenAI("sk-proj-abcdefghijklmnopqrstT3BlbkFJabcdefghijklmnopqrst")',
        'hub = "hf_AbcdEfghIjklmnopQrstuvwxYz01234567"',
        KEY,
    ],
)
def test_secrets_of_any_service_are_left_out(tmp_path, secret):
    code = made(tmp_path)
    (code / "worker.py").write_text(f"first = 1\n{secret}\nlast = 2\n")
    patch = str(provenance.collect(code).git_patch)
    assert "+first = 1" in patch
    assert "last = 2" in patch
    assert "left out" in patch
    for word in secret.replace("'", '"').replace("\n", '"').replace("=", '"').split('"'):
        assert len(word.strip()) < 16 or "KEY-----" in word or word not in patch


def test_a_long_patch_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(checkout, "PATCH_BYTES", 2_000)
    code = made(tmp_path)
    (code / "worker.py").write_text("y\n" * 2_000)
    patch = provenance.collect(code).git_patch or ""
    assert len(patch) < 2_100
    assert "more characters left out" in patch


def test_code_is_left_as_it_is():
    source = Path(checkout.__file__).read_text()
    assert checkout.without_secrets(source) == source


def test_what_is_recorded_can_be_less(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_CHECKS", "1")
    code = made(tmp_path)
    (code / "worker.py").write_text("steps = 5\n")
    everything = provenance.collect(code)
    assert everything.git_patch
    assert everything.environment["JAX_ENABLE_CHECKS"] == "1"
    nothing = provenance.collect(code, ())
    assert (nothing.git_patch, nothing.environment) == (None, {})
    assert nothing.git_commit == everything.git_commit
    assert provenance.collect(code, ("environment",)).environment == everything.environment


def test_the_first_launch_says_what_is_recorded_and_the_config_file_turns_it_off(root, tmp_path, monkeypatch):
    spec = labs.write_study(tmp_path, runs={"uniform": {"steps": 2}})
    config = tmp_path / "config.yaml"
    config.write_text("record: []\n")
    monkeypatch.setenv("JESTLAB_CONFIG", str(config))
    monkeypatch.setenv("JAX_ENABLE_CHECKS", "0")
    said = labs.here("launch", spec, "--no-reports", root=root).stdout
    assert "recorded of each attempt: host, device" in said
    assert f"To record less: `record: []` in {config}" in said
    query = ("query", "SELECT environment, git_patch FROM v_attempts", "--format", "json")
    assert '"environment": "{}"' in labs.here(*query, root=root).stdout
    again = labs.here("launch", spec, "--no-reports", "--set", "seeds=2", root=root).stdout
    assert "recorded of each attempt" not in again


def test_an_unknown_part_is_named(tmp_path, monkeypatch):
    config = tmp_path / "config.yaml"
    config.write_text("record: [everything]\n")
    monkeypatch.setenv("JESTLAB_CONFIG", str(config))
    said = labs.here("launch", "quickstart", root=tmp_path / "lab")
    assert said.returncode == 1
    assert "config.yaml:1: record" in said.stderr
    assert "changes" in said.stderr
