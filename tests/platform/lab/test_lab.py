"""Where a lab is."""

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab


def test_options_come_before_the_environment_and_the_environment_before_the_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JESTLAB_ROOT", raising=False)
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    assert Lab.find().root == tmp_path / "lab"
    monkeypatch.setenv("JESTLAB_ROOT", str(tmp_path / "mine"))
    assert Lab.find().store_url == f"sqlite:///{tmp_path}/mine/results.db"
    monkeypatch.setenv("JESTLAB_STORE", "sqlite:////elsewhere.db")
    assert Lab.find("here") == Lab(tmp_path / "here", "sqlite:////elsewhere.db")


@pytest.mark.parametrize("name", ["a%20b", "what?"])
def test_folders_that_database_urls_would_misread_are_refused(name):
    with pytest.raises(UserError, match="rename it"):
        Lab.find(name)
