"""What an attempt keeps of its environment: what may matter, and no secret."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab.platform.store import provenance

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
def test_a_secret_variable_is_kept_nowhere(name, secret, others, carrier):
    """Neither under its own name nor within another variable's value."""
    variables = {**others, carrier: f"--flag={secret} {secret}", name: secret}
    kept = provenance.kept_variables(variables)
    assert name not in kept
    assert not any(secret in value for key, value in kept.items() if value != others.get(key))


@given(st.sampled_from(["postgresql", "postgres", "https", "gs", "redis+tls"]), SECRET, st.booleans())
@example("postgresql", "server", False)
def test_a_password_in_a_url_is_not_kept(scheme, password, quoted):
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
        # A password that is in the name of the host is hidden there, too.
        assert "server" in kept["JESTLAB_STORE"] or text in "server"


@pytest.mark.parametrize(
    "name, is_kept",
    [
        ("JAX_PLATFORMS", True),
        ("XLA_FLAGS", True),
        ("TPU_WORKER_ID", True),
        ("LIBTPU_INIT_ARGS", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("OMP_NUM_THREADS", True),
        ("PYTHONHASHSEED", True),
        ("JESTLAB_ROOT", True),
        ("JESTLAB_API_KEY", False),
        ("WANDB_API_KEY", False),
        ("HOME", False),
        ("PGPASSWORD", False),
        ("MYJAX_FLAGS", False),
    ],
)
def test_names(name, is_kept):
    assert provenance.kept_variables({name: "some value"}) == ({name: "some value"} if is_kept else {})


def test_what_matters_stays_as_it_is():
    flags = "--xla_force_host_platform_device_count=8 --xla_cpu_use_thunk_runtime=false"
    assert provenance.kept_variables({"XLA_FLAGS": flags})["XLA_FLAGS"] == flags
    url = "sqlite:////data/lab@home/results.db"
    assert provenance.kept_variables({"PYTHONPATH": "/a:/b@c"})["PYTHONPATH"] == "/a:/b@c"
    assert "results.db" in provenance.kept_variables({"JESTLAB_STORE": url})["JESTLAB_STORE"]


def test_any_bytes_become_text_that_databases_take():
    kept = provenance.kept_variables({"JAX_A": os.fsdecode(b"\xff\xfe!"), "JAX_B": "x" * 100_000})
    assert kept["JAX_A"].encode() == b"??!"
    assert len(kept["JAX_B"]) < 5_000


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://lab:se:same/@x@db/results",
        "postgresql://db/results?user=lab&password=se:same/@x&sslmode=require",
    ],
)
def test_the_stores_password_is_a_secret(url):
    assert provenance.secret_values({"JESTLAB_STORE": url}) == ["se:same/@x"]
