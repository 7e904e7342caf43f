"""URLs of stores: no part of a password is shown, however it is written."""

import click
import labs_support as labs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab.analysis import query
from jestlab.analysis.connection import shown
from jestlab.platform.cli import options
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.address import parse_url, shown_url

PARTS = st.lists(
    st.sampled_from(["@", "/", ":", "?", "#", "%", "&", "=", "[", "]", " "]), min_size=1, max_size=4
)


def shown_or_error(url: str) -> str:
    """Return how a URL is shown, or the error if it is refused."""
    try:
        return shown_url(parse_url(url))
    except UserError as error:
        return str(error)


@given(PARTS)
@example(["@"])
@example(["@", "/"])
@example(["/", "@", ":"])
@example(["/", ":", "@"])
def test_hides_passwords_with_any_signs(signs):
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
        assert "zebra" not in shown_or_error(url), url
        assert "\n" not in shown_or_error(url)
        try:
            assert "zebra" not in shown(url)
        except ValueError as error:
            assert "zebra" not in str(error)


def test_unquoted_passwords_are_errors_in_one_line(root, monkeypatch):
    url = "postgresql://lab:p@ss/word@server/db"
    done = labs.here("doctor", "--no-jax", "--store", url, root=root)
    assert done.returncode == 1
    assert "store 'postgresql://***': an @ in the password has to be written %40" in done.stdout
    assert not any(part in done.stdout.replace("***", "") for part in ("ss/", "word@", "p@"))
    monkeypatch.setenv("JESTLAB_STORE", url)
    with pytest.raises(ValueError, match=r"has to be written %40"):
        query.frame()
    with pytest.raises(UserError, match=r"^--root postgresql://\*\*\* is not a folder: .*--store"):
        Lab.find(url)


def test_parses_quoted_passwords():
    address = parse_url("postgresql://lab:p%40ss%2Fword@server/db")
    assert address.password == "p@ss/word"
    assert shown_url(address) == "postgresql://lab:***@server/db"
    assert parse_url("postgresql://lab@corp:word@server/db").username == "lab@corp"
    assert shown_url(parse_url("postgresql://server/db?user=lab&password=a")) == "postgresql://server/db?***"
    assert shown_url(parse_url("postgres://server/db?user=lab")) == "postgresql://server/db?user=lab"


def test_suggested_commands_contain_no_password():
    command = click.Command("status", params=[])
    with click.Context(command) as context:
        context.params = {"root": "lab", "store": "postgresql://server/db?user=lab&password=ab&cd"}
        assert options.same_lab_options() == " --root lab --store 'postgresql://server/db?***'"
        context.params = {"root": None, "store": "sqlite:///lab/results.db"}
        assert options.same_lab_options() == " --store sqlite:///lab/results.db"
