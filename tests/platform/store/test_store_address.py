"""No part of a password is shown, however the URL of a store is written."""

from __future__ import annotations

import click
import labs_support as labs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab.analysis import query
from jestlab.analysis.connection import shown
from jestlab.platform.cli import options
from jestlab.platform.errors import UserError
from jestlab.platform.store.address import parse_url, shown_url

PARTS = st.lists(
    st.sampled_from(["@", "/", ":", "?", "#", "%", "&", "=", "[", "]", " "]), min_size=1, max_size=4
)


def said(url: str) -> str:
    """All that is shown of a URL: when it is refused, and otherwise of what it was taken for."""
    try:
        return shown_url(parse_url(url))
    except UserError as error:
        return str(error)


@given(PARTS)
@example(["@"])
@example(["@", "/"])
@example(["/", "@", ":"])
@example(["/", ":", "@"])
def test_a_password_with_any_sign_is_hidden(signs):
    password = "zebra" + "".join(f"{sign}zebra{number}" for number, sign in enumerate(signs))
    for url in (
        f"postgresql://lab:{password}@server/results",
        f"postgresql://:{password}@server:5432/results?sslmode=require",
        f"postgres://lab:{password}@server:port/results",
        f"mysql://lab:{password}@server/results",
        f"postgresql//lab:{password}@server/results",
        f"postgresql://server/results?user=lab&password={password}",
        f"postgresql://server/results?user=lab&sslpassword={password}&x=y",
    ):
        assert "zebra" not in said(url), url
        assert "\n" not in said(url)
        try:
            assert "zebra" not in shown(url)
        except ValueError as error:
            assert "zebra" not in str(error)


@pytest.mark.parametrize("url", ["postgresql://lab:p@ss/word@server/db", "postgresql://lab:p@ss@server/db"])
def test_a_password_that_has_to_be_quoted_is_one_line_everywhere(root, url, monkeypatch):
    message = "store 'postgresql://***': an @ of its password has to be written %40"
    for words in (["status"], ["query", "SELECT 1"], ["db", "check"], ["doctor", "--no-jax"], ["gc"]):
        done = labs.here(*words, "--store", url, root=root)
        assert done.returncode == 1
        assert message in done.stdout + done.stderr
        for part in ("ss", "word@", "p@"):
            assert f"{part}/" not in done.stdout + done.stderr.replace("***", "")
    monkeypatch.setenv("JESTLAB_STORE", url)
    with pytest.raises(ValueError, match=r"has to be written %40"):
        query.frame()
    done = labs.here("status", "--root", url)
    assert done.returncode == 1
    assert done.stderr == "jestlab: --root postgresql://*** is no folder: a database's URL is for --store\n"


def test_a_quoted_password_is_read():
    address = parse_url("postgresql://lab:p%40ss%2Fword@server/db")
    assert address.password == "p@ss/word"
    assert shown_url(address) == "postgresql://lab:***@server/db"
    assert parse_url("postgresql://lab@corp:word@server/db").username == "lab@corp"
    assert shown_url(parse_url("postgresql://server/db?user=lab&password=a")) == "postgresql://server/db?***"
    assert shown_url(parse_url("postgres://server/db?user=lab")) == "postgresql://server/db?user=lab"


def test_suggested_commands_hold_no_password():
    command = click.Command("status", params=[])
    with click.Context(command) as context:
        context.params = {"root": "lab", "store": "postgresql://server/db?user=lab&password=ab&cd"}
        assert options.same_lab_options() == " --root lab --store 'postgresql://server/db?***'"
        context.params = {"root": None, "store": "sqlite:///lab/results.db"}
        assert options.same_lab_options() == " --store sqlite:///lab/results.db"
