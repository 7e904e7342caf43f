"""What attempts record of code and environment: jestlab's own checkout, scripts, variables; no secrets."""

import hashlib
import os
import subprocess
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import labs_support as labs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import text

from jestlab.analysis.provenance import checkout
from jestlab.platform.redaction import PARTS
from jestlab.platform.store import provenance
from jestlab.platform.store.store import Store

# ---- the checkout

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq5Tk0Vq1kK0m2w8v2\n-----END RSA PRIVATE KEY-----"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


def made(root: Path, place: str = "platform/jestlab/platform", ignored: str = "") -> Path:
    """Create a repository with jestlab's code in one of its folders, and commit it."""
    code = root / place
    code.mkdir(parents=True)
    (code / "worker.py").write_text("steps = 4\n")
    (root / "notes.txt").write_text("nothing\n")
    (root / ".gitignore").write_text(ignored)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return code


def test_records_commit_and_changes_of_jestlabs_checkout(tmp_path):
    """Also if it's a part of another project, whose other changes are private."""
    code = made(tmp_path, "third_party/jestlab/platform/jestlab/platform")
    about = provenance.collect(code)
    assert about.git_commit == git(tmp_path, "rev-parse", "HEAD").strip()
    assert about.git_patch is None
    (tmp_path / "notes.txt").write_text("private\n")
    (code / "worker.py").write_text("steps = 5\n")
    patch = str(provenance.collect(code).git_patch)
    assert "-steps = 4\n+steps = 5" in patch
    assert "private" not in patch


@pytest.mark.parametrize(
    ("place", "ignored"),
    [
        (".venv/lib/python3.11/site-packages/jestlab/platform", ""),  # a committed environment
        ("platform/jestlab/platform", "platform"),
    ],
)
def test_ignores_a_repository_that_only_contains_an_installation(tmp_path, place, ignored):
    """Its commit doesn't tell the version of jestlab's code, and its changes are private."""
    code = made(tmp_path, place, ignored)
    (tmp_path / "notes.txt").write_text("my_password = 'correct-horse'\n")
    about = provenance.collect(code)
    assert (about.git_commit, about.git_patch) == (None, None)


PORTIONS = ("analysis", "experiments", "models", "platform")


@pytest.fixture
def installed_version(monkeypatch):
    """Return a function that returns the version of the jestlab in these folders, which aren't a checkout."""

    def found(*folders: Path) -> str:
        places = [str(folder / "jestlab") for folder in folders]
        find = SimpleNamespace(find_spec=lambda name: PathFinder.find_spec(name, places))
        monkeypatch.setattr(checkout, "util", find)
        return checkout.jestlab_version.__wrapped__()

    monkeypatch.setattr(checkout.Checkout, "of", lambda file: None)
    return found


def write_portions(*folders: Path) -> None:
    for portion, folder in zip(PORTIONS, folders, strict=True):
        (folder / "jestlab" / portion).mkdir(parents=True)
        (folder / "jestlab" / portion / "__init__.py").write_text(f"name = {portion!r}\n")


def test_the_version_of_an_installed_jestlab_has_a_digest_of_its_code(tmp_path, installed_version):
    site, sources = tmp_path / "site-packages", tmp_path / "sources"
    write_portions(*[site] * 4)
    first = installed_version(site)
    number, _, digest = first.partition("+code.")
    assert number == version("jestlab") and len(digest) == 12 and int(digest, 16)
    write_portions(*(sources / portion for portion in PORTIONS))
    assert installed_version(*(sources / portion for portion in PORTIONS)) == first
    losses = site / "jestlab" / "models" / "losses.py"
    losses.write_text("rate = 1\n")
    second = installed_version(site)
    losses.write_text("rate = 1\n# a comment\n")
    third = installed_version(site)
    losses.rename(losses.with_name("loss.py"))
    assert len({first, second, third, installed_version(site)}) == 4
    losses.with_name("loss.py").rename(losses)
    (site / "jestlab" / "models" / "__pycache__").mkdir()
    (site / "jestlab" / "models" / "__pycache__" / "losses.cpython-311.pyc").write_bytes(b"0")
    (tmp_path / "jestlab").mkdir()  # a folder of that name is in a namespace package, too
    (tmp_path / "jestlab" / "notes.py").write_text("1\n")
    assert installed_version(tmp_path, site) == third


def test_attempts_record_the_digest_only_without_a_checkout(tmp_path, monkeypatch):
    assert provenance.collect(made(tmp_path)).versions["jestlab"] == version("jestlab")
    monkeypatch.setattr(checkout.Checkout, "of", lambda file: None)
    monkeypatch.setattr(provenance, "jestlab_version", checkout.jestlab_version.__wrapped__)
    about = provenance.collect(tmp_path)
    assert about.git_commit is None and "+code." in about.versions["jestlab"]
    assert provenance.versions(["jestlab"])["jestlab"] == about.versions["jestlab"]


SECRETS = [
    "password = 'hunter22hunter22'",
    "AKIAIOSFODNN7EXAMPLE",
    "export TOKEN=ghp_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789",
    'slack = "xoxb-123456789012-1234567890123-abcdefghijABCDEFGHIJabcd"',
    'client = OpenAI("sk-proj-abcdefghijklmnopqrstT3BlbkFJabcdefghijklmnopqrst")',
    'hub = "hf_AbcdEfghIjklmnopQrstuvwxYz01234567"',
    KEY,
]


def test_known_secrets_are_replaced_in_changes_and_those_of_any_service_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_STORE", "postgresql://lab:open%20sesame@db.example/results")
    monkeypatch.setenv("SOME_API_TOKEN", "hunter2hunter2")
    code = made(tmp_path)
    known = (
        "connect('open sesame')\nurl = 'https://ada:xyzzy-4711@files.example/x'\nlogin('hunter2hunter2')\n"
    )
    (code / "worker.py").write_text(known + "".join(f"{s}\nline = {s[:3]!r}\n" for s in SECRETS))
    patch = str(provenance.collect(code).git_patch)
    assert "+connect('***')\n+url = 'https://***@files.example/x'\n+login('***')\n" in patch
    assert patch.count("+line = ") == patch.count("left out") == len(SECRETS)
    words = "\n".join(SECRETS).replace("'", '"').replace("\n", '"').replace("=", '"').split('"')
    assert [w for w in words if len(w.strip()) >= 16 and "KEY-----" not in w and w in patch] == []


def test_leaves_ordinary_code_unchanged():
    source = Path(provenance.__file__).read_text()
    assert provenance.without_secret_lines(source) == source


def test_records_only_the_configured_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_CHECKS", "1")
    code = made(tmp_path)
    announced, count = provenance.announcement(code, PARTS, False), len(provenance.kept_variables(os.environ))
    assert "uncommitted" not in announced
    assert f" {count} environment variables (and jestlab's own), " in announced
    (code / "worker.py").write_text("steps = 5\n")
    assert "with uncommitted changes" in provenance.announcement(code, PARTS, False)
    everything = provenance.collect(code)
    assert everything.git_patch
    assert everything.environment["JAX_ENABLE_CHECKS"] == "1"
    nothing = provenance.collect(code, ())
    assert (nothing.git_patch, nothing.environment) == (None, {})
    assert nothing.git_commit == everything.git_commit
    assert provenance.collect(code, ("environment",)).environment == everything.environment


def test_the_first_launch_announces_what_is_recorded_and_the_config_file_turns_it_off(
    root, tmp_path, monkeypatch
):
    spec = labs.write_study(tmp_path, runs={"uniform": {"steps": 2}})
    config = tmp_path / "config.yaml"
    config.write_text("record: []\n")
    monkeypatch.setenv("JESTLAB_CONFIG", str(config))
    monkeypatch.setenv("JAX_ENABLE_CHECKS", "0")
    said = labs.here("launch", spec, "--no-reports", root=root).stdout
    assert "each attempt records, without secrets: host, device" in said
    assert f"To record less: `record: []` in {config}" in said
    query = ("query", "SELECT environment, git_patch FROM v_attempts", "--format", "json")
    assert '"environment": "{}"' in labs.here(*query, root=root).stdout
    again = labs.here("launch", spec, "--no-reports", "--set", "seeds=2", root=root).stdout
    assert "each attempt records" not in again


# ---- users' scripts


def kept(store: Store, *files: Path) -> dict[str, str]:
    provenance.store_texts(store, files, provenance.cleaner())
    with store.reading() as connection:
        return dict(connection.execute(text("SELECT sha256, text FROM v_sources")).tuples().all())


def test_stores_a_file_once_under_the_digest_of_its_original(store, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "correct-horse")
    content = "λ = 1\nkey = 'correct-horse'\npassword = 'Tr0ub4dor&3-staple'\n"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(content)
    [(digest, said)] = kept(store, tmp_path / "one.py", tmp_path / "two.py").items()
    assert digest == hashlib.sha256(content.encode()).hexdigest()
    assert said.startswith("λ = 1\n") and "correct-horse" not in said and "Tr0ub4dor" not in said
    assert len(kept(store, tmp_path / "one.py")) == 1


def test_stores_no_large_files_and_no_binary_files(store, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "MOST_FILE_BYTES", 10)
    monkeypatch.setattr(provenance, "MOST_BYTES", 12)
    contents = {
        "a.py": b"0123456789A", "b.py": b"\xff\xfe", "c.py": b"a\0b", "d.py": b"dd" * 4, "e.py": b"eeeee",
        ".env": b"A=1", "run": b"#!/a",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [*(tmp_path / name for name in contents), tmp_path / "missing.py"]
    assert sorted(kept(store, *files).values()) == ["#!/a", "dddddddd"]


# ---- environment variables

SECRET = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=6, max_size=40).filter(
    lambda text: text.strip() == text and "*" not in text
)
ALPHABET = st.characters(codec="ascii", categories=["Lu", "Nd"], include_characters="_")
NAMES = st.one_of(
    st.sampled_from(["JESTLAB_STORE", "XLA_FLAGS", "JAX_PLATFORMS", "OMP_NUM_THREADS", "PYTHONPATH", "HOME"]),
    st.text(ALPHABET, min_size=1, max_size=12),
)
SECRET_NAMES = st.builds(
    lambda prefix, word, suffix: f"{prefix}{word}{suffix}",
    st.sampled_from(["", "JESTLAB_", "JAX_", "WANDB_API_", "PYTHON", "xla_", "AWS_"]),
    st.sampled_from(
        ["KEY", "TOKEN", "SECRET", "PASSWORD", "PGPASSWORD", "CREDENTIALS", "password", "AuthToken"]
    ),
    st.sampled_from(["", "_ID", "_FILE", "2"]),
)


@given(SECRET_NAMES, SECRET, st.dictionaries(NAMES, st.text(max_size=20), max_size=4), NAMES)
@example("JESTLAB_TOKEN", "s3cret!", {}, "JAX_PLATFORMS")
def test_secret_variables_are_not_recorded(name, secret, others, carrier):
    """Neither under its own name nor within another variable's value."""
    variables = {**others, carrier: f"--flag={secret} {secret}", name: secret}
    kept = provenance.kept_variables(variables)
    assert name not in kept
    assert not any(secret in value for key, value in kept.items() if value != others.get(key))


@given(st.sampled_from(["postgresql", "postgres", "https", "gs", "redis+tls"]), SECRET, st.booleans())
@example("postgresql", "server", False)
def test_passwords_in_urls_are_not_recorded(scheme, password, quoted):
    if not quoted and any(character.isspace() or character in "\"'" for character in password):
        quoted = True
    text = quote(password, safe="") if quoted else password
    for url in (
        f"{scheme}://lab:{text}@server/results",
        f"{scheme}://:{text}@server",
        f"{scheme}://server/results?user=lab&password={quote(password, safe='')}&sslmode=require",
        f"host=server password={quote(password, safe='')} dbname=results",
    ):
        kept = provenance.kept_variables({"JESTLAB_STORE": url, "JAX_FLAGS": f"a {url} b"})
        for value in kept.values():
            rest = value.replace("server", "").replace("results", "").replace("require", "")
            assert text not in rest
            assert quote(password, safe="") not in rest
        # A password that is part of the host's name is hidden there, too.
        assert "server" in kept["JESTLAB_STORE"] or text in "server"


def test_records_relevant_variables_as_text():
    kept = (
        "JAX_PLATFORMS", "XLA_FLAGS", "TPU_WORKER_ID", "LIBTPU_INIT_ARGS", "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS", "PYTHONHASHSEED", "JESTLAB_ROOT", "TF_CPP_MIN_LOG_LEVEL", "TF_XLA_FLAGS",
    )  # fmt: skip
    terraform = ("TF_CLI_CONFIG_FILE", "TF_VAR_region", "TF_PLUGIN_CACHE_DIR", "TF_DATA_DIR", "TF_LOG_PATH")
    others = ("JESTLAB_API_KEY", "WANDB_API_KEY", "HOME", "PGPASSWORD", "MYJAX_FLAGS", *terraform)
    variables = {name: f"the value of {name}" for name in (*kept, *others)}
    assert provenance.kept_variables(variables) == {name: variables[name] for name in kept}
    flags = "--xla_force_host_platform_device_count=8 --xla_cpu_use_thunk_runtime=false"
    assert provenance.kept_variables({"XLA_FLAGS": flags})["XLA_FLAGS"] == flags
    url = "sqlite:////data/lab@home/results.db"
    assert provenance.kept_variables({"PYTHONPATH": "/a:/b@c"})["PYTHONPATH"] == "/a:/b@c"
    assert "results.db" in provenance.kept_variables({"JESTLAB_STORE": url})["JESTLAB_STORE"]
    found = provenance.kept_variables({"JAX_A": os.fsdecode(b"\xff\xfe!"), "JAX_B": "x" * 100_000})
    assert found["JAX_A"].encode() == b"??!"
    assert len(found["JAX_B"]) < 5_000
