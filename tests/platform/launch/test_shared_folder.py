"""Two machines that share a folder launch a study together, without a database server."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import labs_support as labs
import nodes_support
import pytest
from nodes_support import Command, Node
from tests.waiting import wait_until

from jestlab.analysis.shared import SCRATCH

pytestmark = pytest.mark.cluster


def start(node: Node, root: Path, *words: str) -> Command:
    """Start `jestlab` on a node."""
    own = {**labs.variables(root), SCRATCH: str(node.disk), "HOME": str(node.disk)}
    return node.start_command(
        [*labs.JESTLAB, *words, "--root", str(root)], env=os.environ | own, stdout=subprocess.PIPE
    )


def printed(node: Node, root: Path, *words: str) -> Any:
    return json.loads(start(node, root, *words, "--json").communicate()[0])


def test_the_second_machine_completes_what_the_first_was_doing_when_it_was_killed(tmp_path):
    if (reason := nodes_support.why_not()) is not None:
        pytest.skip(reason)
    root, hurry = tmp_path / "shared" / "lab", tmp_path / "served" / "hurry"
    study = labs.write_study(
        tmp_path,
        base={"steps": 400, "pause": 0.05, "hurry": str(tmp_path / "shared" / "hurry")},
        seeds=2,
        resources={"retries": 3, "lease_seconds": 20.0},
    )
    launch = ("launch", str(study), "--no-reports")
    with nodes_support.two_nodes(tmp_path) as nodes:
        first, second = nodes
        start(first, root, *launch)
        # The store is chosen by the file system.
        wait_until((tmp_path / "served" / "lab" / "results.shared").is_dir)
        launcher = start(second, root, *launch)

        begun = "SELECT 1 FROM v_runs WHERE step > 0 AND state = 'RUNNING'"
        wait_until(lambda: printed(second, root, "query", begun))
        first.kill()
        hurry.touch()
        output, _ = launcher.communicate(timeout=120)
        assert launcher.returncode == 0, output.decode()
        first.start()
        tables = [printed(node, root, "table", "toy") for node in nodes]
        assert tables[0] == tables[1]
        assert {row["seeds"] for row in tables[0]["rows"]} == {2}
        assert {row["state"] for row in printed(first, root, "query", "SELECT state FROM v_runs")} == {
            "COMPLETED"
        }
        ends = printed(first, root, "query", "SELECT host, state FROM v_attempts")
        assert {(row["host"], row["state"]) for row in ends} >= {("n1", "PREEMPTED"), ("n2", "COMPLETED")}
        assert len([row for row in ends if row["state"] == "COMPLETED"]) == 6
