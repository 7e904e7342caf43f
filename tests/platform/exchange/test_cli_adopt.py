"""`jestlab adopt`: runs of other tools in tables and claims, next to jestlab's own runs."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
import yaml
from tests.platform.exchange.make_data import DATA

from jestlab.platform import reports
from jestlab.platform.exchange import read_tables as tables
from jestlab.platform.lab.lab import Lab
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

pytestmark = pytest.mark.usefixtures("in_process")

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
}


def printed(root: Path, *arguments: object, code: int = 0) -> str:
    done = labs.here(*arguments, root=root)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def adopted(root: Path, *arguments: object) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(printed(root, "adopt", *arguments, "--json"))
    return content


@pytest.fixture
def siglip(tmp_path: Path) -> Path:
    (tmp_path / "siglip.csv").write_text(SIGLIP)
    return tmp_path / "siglip.csv"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path / "toy.yaml"


def adopt_table(root: Path, path: Path, *options: object) -> dict[str, Any]:
    columns = ("--run", "model,seed", "--label", "{model}", "--score", "toy/*", "--examples", "examples")
    return adopted(root, "csv", path, "--into", "toy", *columns, "--flops", "flops", *options)


def test_adopted_runs_are_in_tables_and_claims_next_to_own_runs(root, spec, siglip):
    adoption = adopt_table(root, siglip)
    assert [(run["label"], run["seed"], run["change"]) for run in adoption["runs"]] == [
        ("siglip (csv)", seed, "new") for seed in range(6)
    ]
    assert "no longer part" not in printed(root, "launch", spec, "--no-reports")
    table = json.loads(printed(root, "table", "toy", "--json"))
    assert {row["label"] for row in table["rows"]} == {"joint", "uniform", "siglip (csv)"}
    text = printed(root, "table", "toy", "--baseline", "siglip")
    assert "not run by jestlab, but adopted from another tool: siglip (csv)" in text
    assert "Δ siglip (csv)" in text
    claims = printed(root, "table", "claims", "toy")
    assert "joint beats SigLIP" in claims and "holds" in claims
    assert len(json.loads(printed(root, "status", "toy", "--json"))) == 18
    # Launching, canceling, and retrying don't touch adopted runs.
    assert "nothing to run" in printed(root, "launch", spec, "--no-reports")
    assert printed(root, "cancel", "toy") == "nothing to cancel\n"
    assert adopt_table(root, siglip)["runs"][0]["change"] == "same"
    assert "was imported" in printed(root, "logs", "toy/siglip/0", code=1)


def test_a_study_can_consist_of_adopted_runs(root, spec, siglip, tmp_path):
    adopt_table(root, siglip, "--goal", "max")
    assert "siglip (csv)" in printed(root, "table", "toy")
    (tmp_path / "other.csv").write_text(SIGLIP.replace("siglip", "clip").replace(",1,1", ",1,2"))
    with closing(Store.open(Lab.find(root).store_url)) as store:
        before = reports.build_key(store, load(str(spec)))
        adopt_table(root, tmp_path / "other.csv")
        assert reports.build_key(store, load(str(spec))) != before  # reports are written again
    alone = {key: SPEC[key] for key in ("name", "question", "metrics")} | {"adopted": ["siglip", "clip"]}
    alone["claims"] = [{"statement": "SigLIP beats CLIP", "of": "siglip", "better_than": "clip"}]
    spec.write_text(yaml.safe_dump(alone))
    assert "siglip, clip" in printed(root, "plan", spec)
    launched = printed(root, "launch", spec, "--no-reports")
    assert "nothing to run" in launched
    assert "Is joint better" in printed(root, "table", "toy")
    assert "SigLIP beats CLIP" in printed(root, "table", "claims", "toy")


def test_adopts_what_other_tools_recorded(root, tmp_path):
    from tensorboardX import SummaryWriter

    for name in ("run0", "run1"):
        with SummaryWriter(str(tmp_path / name)) as writer:
            writer.add_scalar("eval/top1", 0.5, 2)
    options = ("--into", "old", "--score", "eval*", "--goal", "max", "--examples", "step*32")
    for kind, path, labels in (
        ("wandb", DATA / "wandb", {"first try (wandb)"}),
        ("mlflow", DATA / "mlruns", {"one (mlflow)", "two (mlflow)"}),
        ("tensorboard", tmp_path, {"run0 (tensorboard)", "run1 (tensorboard)"}),
    ):
        first = adopted(root, kind, path, *options)
        assert {run["label"] for run in first["runs"]} == labels
        assert max(run["scores"].get("eval/top1", 0) for run in first["runs"]) > 0
        assert {run["change"] for run in adopted(root, kind, path, *options)["runs"]} == {"same"}


def test_a_dry_run_writes_nothing(root, siglip):
    options = ("csv", siglip, "--into", "old", "--run", "model,seed")
    dry = printed(root, "adopt", *options, "--dry-run")
    assert "6 runs would be adopted into old; nothing was written" in dry
    assert "none of their metrics is a score" in dry and "examples, flops, toy/score" in dry
    assert not (root / "results.db").exists()
    assert len(adopted(root, *options, "--only", "*seed=[12]")["runs"]) == 2
    before = (root / "results.db").read_bytes()
    printed(root, "adopt", *options, "--dry-run", "--score", "toy/*")
    assert "no runs were adopted: no name matches x*" in printed(root, "adopt", *options, "--only", "x*")
    assert (root / "results.db").read_bytes() == before


def test_errors_are_one_line(root):
    for arguments, message in (
        ("wandb x --into old --run a", "--run: not an option of wandb"),
        ("mlflow x --into old --source a", "--source: not an option of mlflow"),
        ("csv x --into a/b", "--into a/b: expected letters"),
        ("wandb x --into old", "x: no W&B runs"),
        ("csv x --into old --score a=b", "expected DATASET/METRIC=NAME"),
        ("csv x", "Missing option '--into'"),
    ):
        done = labs.here("adopt", *arguments.split(), root=root)
        assert done.returncode in (1, 2), arguments
        assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_archive_contains_adopted_runs(root, siglip, tmp_path):
    adopt_table(root, siglip)
    printed(root, "export", tmp_path / "toy.zip", "toy")
    other = tmp_path / "other"
    printed(other, "import", tmp_path / "toy.zip")
    line = "- toy was imported from toy.zip.\n"
    assert printed(other, "table", "toy").replace(line, "") == printed(root, "table", "toy")
    assert "sound" in printed(other, "db", "check")
    assert "nothing to delete" in printed(other, "gc", "--older-than", "0m")
    assert {run["change"] for run in adopt_table(other, siglip)["runs"]} == {"same"}


def test_damaged_runs_are_one_line_and_the_others_are_adopted(root, siglip):
    siglip.write_text(SIGLIP.replace("2,1,9.5", "2,?,9.5").replace("4,1,", "4,x,").replace("10.25", "N/A"))
    done = labs.here("adopt", "csv", siglip, "--into", "old", "--run", "model,seed", root=root)
    first, second = done.stderr.splitlines()
    assert done.returncode == 1 and "line 4: invalid step '?'" in first and "line 6" in second
    assert "4 runs in old: 4 new" in done.stdout
    assert "left out: 1 cells of column toy/score that aren't numbers" in done.stdout


def test_too_little_memory_is_one_line(root, siglip, monkeypatch):
    monkeypatch.setattr(tables, "parse_cell", lambda cell: [0] * 2**62)
    done = labs.here("adopt", "csv", siglip, "--into", "old", root=root)
    assert (done.returncode, done.stderr) == (1, "jestlab: not enough memory\n")
