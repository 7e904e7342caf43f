"""`jestlab register`: what a study claims, before its first run; what has changed since is exploratory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import labs_support as labs

CLAIMS = [
    {"statement": "Joint is better", "of": "joint", "above": "uniform"},
    {"statement": "Other is better", "of": "other", "above": "uniform"},
]


def write_study(folder: Path, **parts: Any) -> Path:
    runs = {
        name: {"mean": mean, "salt": name}
        for name, mean in (("uniform", 0.5), ("joint", 0.7), ("other", 0.9))
    }
    defaults = {
        "program": "toy_programs:draw", "base": {"spread": 0.05}, "runs": runs, "claims": CLAIMS, "seeds": 2,
        "score": ["toy/score"],
    }  # fmt: skip
    return labs.write_study(folder, **defaults | parts)


def claims(root: Path, name: str = "toy") -> dict[str, str]:
    """Statement → what of it is exploratory."""
    content = json.loads(labs.here("table", "claims", name, "--json", root=root).stdout)
    assert all(row["registered"] for row in content["rows"])
    return {row["statement"]: row["exploratory"] for row in content["rows"]}


def test_a_study_that_is_launched_as_it_was_registered(root):
    spec = write_study(root.parent)
    first = labs.here("register", spec, root=root)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("toy is registered: 2 claims, an error of 5% together; digest ")
    assert labs.here("register", spec, root=root).stdout.startswith("toy was registered as it is: 2 claims")
    launched = labs.here("launch", spec, "--no-reports", root=root)
    assert launched.returncode == 0, launched.stderr
    assert "exploratory" not in launched.stdout
    assert claims(root) == dict.fromkeys(["Joint is better", "Other is better"], "")
    shown = labs.here("table", "claims", "toy", root=root).stdout
    assert "registered on 20" in shown
    assert "before its first run" in shown


def test_what_has_changed_is_said_before_the_launch_and_marked_after_it(root):
    labs.here("register", write_study(root.parent), root=root)
    wider = [CLAIMS[0] | {"within": 0.01}, CLAIMS[1]]
    spec = write_study(root.parent, claims=wider)
    for verb in ("plan", "launch"):
        said = labs.here(verb, spec, *(["--no-reports"] if verb == "launch" else []), root=root).stdout
        assert "changed since, and exploratory: toy: Joint is better: within nothing → 0.01" in said
    assert claims(root) == {"Joint is better": "within nothing → 0.01", "Other is better": ""}


def test_a_rule_that_has_changed_makes_every_claim_exploratory(root):
    spec = write_study(root.parent)
    labs.here("register", spec, root=root)
    labs.here("launch", spec, "--set", "seeds=3", "--no-reports", root=root)
    assert set(claims(root).values()) == {"seeds: [0, 1] → [0, 1, 2]"}


def test_a_study_that_has_begun_cannot_be_registered(root):
    spec = write_study(root.parent)
    labs.here("launch", spec, "--no-reports", root=root)
    refused = labs.here("register", spec, root=root)
    assert refused.returncode == 1
    assert "6 of the runs of toy have begun: a study is registered before its first run" in refused.stderr


def test_until_its_first_run_a_study_can_be_registered_anew(root):
    labs.here("register", write_study(root.parent), root=root)
    spec = write_study(root.parent, claims=CLAIMS[:1])
    again = labs.here("register", spec, "--decide", "--json", root=root)
    told = json.loads(again.stdout)
    assert (told["new"], told["studies"]["toy"]["seeds"]) == (True, {"until": "decided", "at_least": 2})
    assert len(told["runs"]) == 3
    labs.here("launch", spec, "--decide", "--no-reports", root=root)
    assert claims(root) == {"Joint is better": ""}


def test_a_study_without_claims_has_nothing_to_register(root):
    refused = labs.here("register", write_study(root.parent, claims=[]), root=root)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "toy claims nothing: write `claims` in its spec" in refused.stderr


def test_a_registered_union_and_an_export_of_it(root, tmp_path):
    for name in ("first", "second"):
        write_study(tmp_path, name=name, claims=CLAIMS[:1]).rename(tmp_path / f"{name}.yaml")
    union = tmp_path / "both.yaml"
    union.write_text("name: both\nstudies: [first.yaml, second.yaml]\nresources: {retries: 0}\n")
    assert "2 claims" in labs.here("register", union, root=root).stdout
    labs.here("launch", union, "--no-reports", root=root)
    assert set(claims(root, "both").values()) == {""}
    archive = tmp_path / "both.tar.gz"
    assert labs.here("export", archive, "both", root=root).returncode == 0
    other = tmp_path / "other"
    imported = labs.here("import", archive, root=other)
    assert imported.returncode == 0, imported.stderr
    assert set(claims(other, "both").values()) == {""}
