"""A command that breeds: each attempt leaves a daemon, a grandchild and a child that hears no SIGTERM.

It says so where it finds one of an earlier attempt alive: then two attempts share a folder.
"""

import json
import subprocess
import time
from pathlib import Path

from jestlab.platform import client

LEAVE = (
    "setsid sh -c 'echo $$ >> bred.txt; exec sleep 900' &"
    "(sh -c 'echo $$ >> bred.txt; exec sleep 900' &) &"
    "sh -c 'trap \"\" TERM; echo $$ >> bred.txt; while :; do sleep 1; done' &"
)


def is_alive(pid: int) -> bool:
    """Whether a process runs, zombies aside."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def main() -> None:
    """Train in miniature, as `toy_programs.loop` does."""
    run = client.run()
    bred, saved = run.directory / "bred.txt", run.directory / "state.json"
    if bred.exists() and any(is_alive(int(pid)) for pid in bred.read_text().split()):
        (run.directory / "overlap.txt").open("a").write("an earlier attempt's process is alive\n")
    bred.write_text("")
    subprocess.run(["sh", "-c", LEAVE], cwd=run.directory, check=True)
    step, value = json.loads(saved.read_text()) if saved.exists() else (0, 1.0 + run.seed)
    while step < run.config["steps"] and not run.stop_requested():
        step, value = step + 1, (value * 1.7 + 0.3) % 5.0
        time.sleep(0.03)
        run.log(step, loss=value)
        run.progress(step, run.config["steps"])
        if step % 5 == 0:
            run.flush()
            saved.with_suffix(".new").write_text(json.dumps([step, value]))
            saved.with_suffix(".new").replace(saved)
    if step == run.config["steps"]:
        run.evaluation(step, 64 * step, 1e6 * step, {"toy/score": value / 5.0})


if __name__ == "__main__":
    main()
