"""`jestlab adopt`: runs of other tools in tables, fronts and claims, beside one's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
import yaml
from tensorboardX import SummaryWriter
from tests.platform.adopting.make_data import DATA

from jestlab.platform.adopting.kinds import READERS
from jestlab.platform.cli.adopt import KINDS

pytestmark = pytest.mark.usefixtures("forking")

SIGLIP = """model,seed,step,toy/score,examples,flops,note
siglip,0,1,10.0,64,1e6,first
siglip,1,1,10.5,64,1e6,
siglip,2,1,9.5,64,1e6,
siglip,3,1,10.25,64,1e6,
siglip,4,1,10.75,64,1e6,
siglip,5,1,9.75,64,1e6,
"""

SPEC = {
    "name": "toy",
    "question": "Is joint better than last year's?",
    "program": "toy_programs:draw",
    "base": {"mean": 20.0, "spread": 0.5},
    "runs": {"joint": {}, "uniform": {"mean": 15.0, "salt": "u"}},
    "seeds": 6,
    "metrics": {"toy/*": {"goal": "max"}},
    "adopted": ["siglip"],
    "claims": [{"statement": "joint beats SigLIP", "of": "joint", "better_than": "siglip"}],
    "reports": [{"table": {"baseline": "siglip"}}, {"pareto": {"cost": "flops"}}],
}


def said(root: Path, *arguments: object, code: int = 0) -> str:
    done = labs.here(*arguments, root=root)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def asked(root: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    done = labs.here("adopt", *arguments, "--json", root=root)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def siglip(tmp_path: Path) -> Path:
    (tmp_path / "siglip.csv").write_text(SIGLIP)
    return tmp_path / "siglip.csv"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path / "toy.yaml"


def test_the_command_knows_every_reader():
    assert list(KINDS) == list(READERS)


def take(root: Path, path: Path, *more: object) -> dict[str, Any]:
    how = ("--run", "model,seed", "--label", "{model}", "--score", "toy/*")
    return asked(
        root, "csv", path, "--into", "toy", *how, "--examples", "examples", "--flops", "flops", *more
    )


def test_they_stand_in_tables_fronts_and_claims_beside_own_runs(root, spec, siglip):
    taken = take(root, siglip)
    assert [(run["label"], run["seed"], run["change"]) for run in taken["runs"]] == [
        ("siglip (csv)", seed, "new") for seed in range(6)
    ]
    told = said(root, "launch", spec)
    assert "no longer part" not in told
    folder = root / "reports" / "toy"
    table = json.loads((folder / "table.json").read_text())
    assert {row["label"] for row in table["rows"]} == {"joint", "uniform", "siglip (csv)"}
    text = (folder / "table.md").read_text()
    assert "not run by jestlab, but adopted from another tool: siglip (csv)" in text
    assert "Δ siglip (csv)" in text
    claims = (folder / "claims.md").read_text()
    assert "joint beats SigLIP" in claims and "holds" in claims
    assert "siglip (csv)" in (folder / "pareto.svg").read_text()
    assert "siglip (csv)" in (folder / "report.html").read_text()
    assert len(json.loads(said(root, "status", "toy", "--json"))) == 18
    # Launched again, cancelled and retried, they are left alone.
    assert "nothing to run" in said(root, "launch", spec)
    assert said(root, "cancel", "toy") == "nothing to cancel\n"
    assert take(root, siglip)["runs"][0]["change"] == "same"
    assert "was adopted" in said(root, "logs", "toy/siglip/0", code=1)


def test_reports_are_made_anew_when_something_is_adopted(root, spec, siglip):
    said(root, "launch", spec, "--set", "claims=[]", "--set", "reports=[table]", "--set", "seeds=1")
    table = root / "reports" / "toy" / "table.md"
    assert "siglip" not in table.read_text()
    take(root, siglip)
    said(root, "launch", spec, "--set", "claims=[]", "--set", "reports=[table]", "--set", "seeds=1")
    assert "siglip (csv)" in table.read_text()


def test_a_study_may_have_adopted_runs_alone(root, spec, siglip, tmp_path):
    take(root, siglip, "--goal", "max")
    assert "siglip (csv)" in said(root, "table", "toy")
    (tmp_path / "other.csv").write_text(SIGLIP.replace("siglip", "clip").replace(",1,1", ",1,2"))
    take(root, tmp_path / "other.csv")
    alone = SPEC | {"adopted": ["siglip", "clip"], "reports": ["table"]}
    alone["claims"] = [{"statement": "SigLIP beats CLIP", "of": "siglip", "better_than": "clip"}]
    for key in ("program", "base", "runs", "seeds"):
        del alone[key]
    spec.write_text(yaml.safe_dump(alone))
    assert "It has no runs of its own; adopted ones: siglip, clip." in said(root, "plan", spec)
    told = said(root, "launch", spec)
    assert "nothing to run: the spec has no runs of its own" in told and "SigLIP beats CLIP" in told
    assert "Is joint better" in said(root, "table", "toy")


def test_a_name_in_a_spec_that_is_nowhere_is_refused(root, spec):
    spec.write_text(yaml.safe_dump(SPEC | {"adopted": ["siglib"]}))
    assert "toy.yaml" in (told := said(root, "plan", spec, code=1)) and "did you mean 'siglib'?" in told
    spec.write_text(yaml.safe_dump(SPEC | {"adopted": ["joint"]}))
    assert "'joint' is a run of this spec: rename one" in said(root, "plan", spec, code=1)
    spec.write_text(yaml.safe_dump(SPEC | {"adopted": "joint"}))
    assert "must be a list of names of runs, not 'joint'" in said(root, "plan", spec, code=1)


@pytest.mark.parametrize(
    ("kind", "path", "labels"),
    [
        ("wandb", "wandb", {"first try (wandb)"}),
        ("mlflow", "mlruns", {"one (mlflow)", "two (mlflow)"}),
    ],
)
def test_what_the_real_tools_recorded_is_adopted(root, kind, path, labels):
    how = (kind, DATA / path, "--into", "old", "--score", "eval*", "--goal", "max")
    first = asked(root, *how)
    assert {run["label"] for run in first["runs"]} == labels
    assert max(run["scores"].get("eval/top1", 0) for run in first["runs"]) > 0
    again = asked(root, *how)
    assert {run["change"] for run in again["runs"]} == {"same"}
    if kind == "mlflow":
        assert "one (mlflow)" in said(root, "table", "old")


def test_a_database_of_mlflow_is_adopted(root, mlflow_database):
    taken = asked(root, "mlflow", mlflow_database, "--into", "old", "--score", "eval/*")
    assert {"eval/top1": 0.375} in [run["scores"] for run in taken["runs"]]


def test_events_of_tensorboard_are_adopted_with_replicates(root, tmp_path):
    for seed in range(2):
        with SummaryWriter(str(tmp_path / "logs" / f"run{seed}")) as writer:
            for step in range(3):
                writer.add_scalar("val/acc", step / 4, step)
    how = ("tensorboard", tmp_path / "logs", "--into", "old", "--label", "base", "--score", "val/*")
    taken = asked(root, *how, "--examples", "step*32")
    assert [(run["label"], run["seed"]) for run in taken["runs"]] == [
        ("base (tensorboard)", 0), ("base (tensorboard)", 1),
    ]  # fmt: skip
    with SummaryWriter(str(tmp_path / "logs" / "more")) as writer:
        writer.add_scalar("val/acc", 0.5, 2)
    again = asked(root, *how, "--examples", "step*32")
    assert [(run["seed"], run["change"]) for run in again["runs"]] == [(2, "new"), (0, "same"), (1, "same")]
    sql = "SELECT seed, examples_seen FROM v_evaluations WHERE final = 1 ORDER BY seed"
    assert json.loads(said(root, "query", sql, "--json")) == [
        {"seed": seed, "examples_seen": 64} for seed in range(3)
    ]


def test_a_damaged_run_does_not_stop_the_others(root, tmp_path):
    shutil.copytree(DATA / "wandb", tmp_path / "wandb")
    [folder] = (tmp_path / "wandb").iterdir()
    shutil.copytree(folder, tmp_path / "wandb" / "offline-run-20250101_000000-broken")
    [log] = (tmp_path / "wandb" / "offline-run-20250101_000000-broken").glob("*.wandb")
    content = bytearray(log.read_bytes())
    content[40] ^= 0xFF
    log.with_name("run-broken.wandb").write_bytes(content)
    log.unlink()
    done = labs.here("adopt", "wandb", tmp_path / "wandb", "--into", "old", root=root)
    assert done.returncode == 1
    assert "first try (wandb)/0" in done.stdout and "1 new" in done.stdout
    [line] = done.stderr.splitlines()
    assert "run-broken.wandb" in line and "copy the file again, or move it away" in line


def test_what_is_wrong_with_many_runs_is_told_once(root, siglip):
    arguments = ("csv", siglip, "--into", "toy", "--run", "model,seed", "--examples", "seen")
    lines = labs.here("adopt", *arguments, root=root).stderr.splitlines()
    assert len(lines) == 2
    assert "no metric 'seen'" in lines[0]
    assert "5 more runs" in lines[1]
    found = asked(root, *arguments, code=1)
    assert len(set(found["failed"])) == 6 and found["runs"] == []


def test_a_dry_run_writes_nothing(root, siglip):
    how = ("csv", siglip, "--into", "old", "--run", "model,seed", "--dry-run")
    told = said(root, "adopt", *how)
    assert "6 runs would be adopted into old; nothing was written" in told
    assert "none of their metrics is a score" in told and "they have examples, flops, toy/score" in told
    assert not (root / "results.db").exists()
    said(root, "adopt", *how[:-1])
    before = (root / "results.db").read_bytes()
    said(root, "adopt", *how, "--score", "toy/*")
    assert (root / "results.db").read_bytes() == before


def test_only_some_runs(root, siglip):
    how = ("csv", siglip, "--into", "old", "--run", "model,seed")
    assert len(asked(root, *how, "--only", "*seed=[12]")["runs"]) == 2
    assert "no runs were adopted: none is named like x*" in said(root, "adopt", *how, "--only", "x*")


def test_files_of_one_name_are_told_apart(root, siglip, tmp_path):
    (tmp_path / "more").mkdir()
    other = tmp_path / "more" / "siglip.csv"
    other.write_text(SIGLIP.replace("10.", "11."))
    take(root, siglip)
    done = labs.here(
        "adopt", "csv", other, "--into", "toy", "--run", "model,seed", "--label", "{model}",
        "--score", "toy/*", "--examples", "examples", "--flops", "flops", root=root,
    )  # fmt: skip
    assert done.returncode == 1 and "--source NAME" in done.stderr and str(siglip) in done.stderr
    assert {run["change"] for run in take(root, other, "--source", "more")["runs"]} == {"new"}
    assert "changed" in {run["change"] for run in take(root, other, "--moved")["runs"]}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["wandb", "x", "--into", "old", "--run", "a"], "--run: only tables have columns, csv and parquet"),
        (["mlflow", "x", "--into", "old", "--source", "a"], "runs of mlflow have names of their own"),
        (["csv", "x", "--into", "a/b"], "--into a/b: expected letters"),
        (["csv", "x", "--into", "old"], "x: no such file"),
        (["wandb", "x", "--into", "old"], "x: no such file or folder: expected a folder wandb"),
        (["csv", "x", "--into", "old", "--score", "a=b"], "expected DATASET/METRIC=NAME"),
        (["excel", "x", "--into", "old"], "'excel' is not one of"),
        (["csv", "x"], "Missing option '--into'"),
    ],
)
def test_mistakes_are_one_line(root, arguments, told):
    done = labs.here("adopt", *arguments, root=root)
    assert done.returncode in (1, 2)
    assert told in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_archive_takes_them_along(root, siglip, tmp_path):
    take(root, siglip)
    said(root, "export", tmp_path / "toy.tar.zst", "toy")
    other = tmp_path / "other"
    said(other, "import", tmp_path / "toy.tar.zst")
    line = "- toy was imported from toy.tar.zst.\n"
    assert said(other, "table", "toy").replace(line, "") == said(root, "table", "toy")
    assert "sound" in said(other, "db", "check")
    assert "nothing to collect" in said(other, "gc", "--older-than", "0m")
    assert {run["change"] for run in take(other, siglip)["runs"]} == {"same"}
