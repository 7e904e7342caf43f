"""CITATION.cff follows the Citation File Format 1.2.0, and agrees with the package."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
KEYS = {
    *("cff-version", "message", "title", "authors"),  # required
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license"),
    *("license-url", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "type", "url", "version"),
}


def test_has_the_required_keys_and_no_unknown_ones():
    assert {"cff-version", "message", "title", "authors"} <= CITATION.keys() <= KEYS
    assert CITATION["cff-version"] == "1.2.0"
    for reference in CITATION["references"]:
        assert {"type", "title", "authors"} <= reference.keys()


def test_agrees_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (CITATION["title"], CITATION["version"], CITATION["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )
    assert CITATION["authors"] == [{"name": "The jestlab developers"}]
