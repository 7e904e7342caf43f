"""Fuzz what reads what others have written, one target after the other, and print a line each.

python tests/fuzz/fuzz.py --seconds 600            # all targets; `make fuzz SECONDS=600`
python tests/fuzz/fuzz.py archives --seconds 60    # one of them
python tests/fuzz/fuzz.py archives --case FILE     # one input again, with its traceback

With atheris, coverage guides the search; without it (it has no build for every machine), mutations of the
seeds are tried at random. Inputs that crash are kept in the folder that the line names.
"""

import argparse
import logging
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "platform" / "support"), str(HERE.parents[1])]

MEMORY_MB = 4_096
"""More than a target may take while it works at an input."""
HANG_SECONDS = 20

_LONGEST_WORD = 64  # that libFuzzer takes
_TOKENS = [
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"-1", b"1000000000", b"9" * 30, b"1e999", b"nan", b"null", b"true",
    b"[]", b"{}", b'""', b"[" * 5_000, b'{"a":' * 2_000, b"\xc3\x28", b"\\ud800", b"../../etc/passwd", b"\n",
    b"/dev/zero", b"!!python/object:os.system", b"&a [*a]", b"\x1b[31m", b" " * 1_000, b"..", b"%s", b"{x}",
    b"~", b"---\n",
]  # fmt: skip


def mutated(seeds: list[bytes], rng: random.Random) -> bytes:
    """Return one of the seeds with a few changes."""
    case = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        start = rng.randrange(len(case) + 1)
        end = min(len(case), start + rng.choice((0, 1, 2, 8, 64, 1_000)))
        change = rng.randrange(5)
        if change == 0:
            case[start:end] = rng.choice(_TOKENS)
        elif change == 1 and case:
            case[start % len(case)] = rng.randrange(256)
        elif change == 2:
            del case[start:end]
        elif change == 3:
            case[start:start] = case[start:end] * rng.choice((1, 2, 20))
        else:
            other = rng.choice(seeds)
            cut = rng.randrange(len(other) + 1)
            case[start:end] = other[cut : cut + rng.choice((1, 8, 64, 1_000))]
    return bytes(case)


class Counted:
    """A target whose crashes are kept, one input for each place in the code.

    Attributes:
        cases: How many inputs it got.
        crashes: Kind and place of each crash → its first input.
    """

    def __init__(self, run: Callable[[bytes], None], kept: Path | None) -> None:
        self._run = run
        self._kept = kept
        self.cases = 0
        self.crashes: dict[str, bytes] = {}
        self._peak = peak_mb()

    def __call__(self, case: bytes) -> None:
        self.cases += 1
        began = time.monotonic()
        try:
            self._run(case)
        except (Exception, RecursionError, MemoryError) as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = next((f for f in reversed(frames) if "jestlab" in f.filename), frames[-1])
            place = f"{type(error).__name__} at {Path(own.filename).name}:{own.lineno}"
            self._keep(place, case, str(error)[:200])
        if (seconds := time.monotonic() - began) > HANG_SECONDS:
            self._keep("a hang", case, f"{seconds:.0f} s")
        if (grown := peak_mb() - self._peak) > MEMORY_MB:
            self._keep("memory", case, f"{grown} MB")

    def _keep(self, place: str, case: bytes, said: str) -> None:
        if place in self.crashes:
            return
        self.crashes[place] = case
        print(f"crash: {place}: {said!r}", flush=True)
        if self._kept is not None:
            self._kept.mkdir(parents=True, exist_ok=True)
            (self._kept / re.sub(r"\W+", "-", place)).write_bytes(case)


def peak_mb() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _guided(name: str, seconds: int, kept: Path) -> None:
    """Fuzz one target with atheris, which ends the process."""
    import atheris

    with atheris.instrument_imports(include=["jestlab", "tarfile", "zipfile"], enable_loader_override=False):
        from targets import TARGETS

        folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
        (folder / "work").mkdir()
        (folder / "corpus").mkdir()
        seeds, run = TARGETS[name](folder / "work")
        counted = Counted(run, kept)
        for seed in seeds:
            counted(seed)
    _quiet()
    for number, seed in enumerate(seeds):
        (folder / "corpus" / str(number)).write_bytes(seed)
    options = [
        f"-max_total_time={seconds}", f"-rss_limit_mb={2 * MEMORY_MB}", f"-timeout={3 * HANG_SECONDS}",
        f"-artifact_prefix={kept}/", "-print_final_stats=1", "-max_len=200000", "-len_control=20",
        f"-dict={folder / 'words'}", str(folder / "corpus"),
    ]  # fmt: skip
    kept.mkdir(parents=True, exist_ok=True)
    words = (token for token in _TOKENS if len(token) <= _LONGEST_WORD)
    quoted = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words)
    (folder / "words").write_text("\n".join(quoted))
    atheris.Setup([sys.argv[0], *options], counted)
    atheris.Fuzz()


def _at_random(name: str, seconds: int, kept: Path) -> None:
    from targets import TARGETS

    _quiet()
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        seeds, run = TARGETS[name](Path(folder))
        counted, rng, end = Counted(run, kept), random.Random(0), time.monotonic() + seconds
        while time.monotonic() < end:
            counted(mutated(seeds, rng))
        os.chdir(HERE)
    print(f"stat::number_of_executed_units: {counted.cases}\nstat::peak_rss_mb: {peak_mb()}", flush=True)


def _line(name: str, seconds: int, kept: Path) -> tuple[str, bool]:
    """Fuzz a target in a process of its own; return the line about it, and whether it crashed."""
    command = [sys.executable, __file__, name, "--seconds", str(seconds), "--inner", "--kept", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = done.stdout + done.stderr
    stats: dict[str, Any] = dict(re.findall(r"stat::(\w+):\s+(\d+)", said))
    places = sorted(set(re.findall(r"^crash: (.*)", said, re.MULTILINE)))
    if found := re.findall(r"ERROR: libFuzzer: (.*)", said):
        places += found
    elif done.returncode:
        places.append(
            f"ended with {done.returncode}: {said.strip().splitlines()[-1] if said.strip() else ''}"
        )
    covered = re.findall(r"cov: (\d+)", said)
    line = (
        f"{name:9} {int(stats.get('number_of_executed_units', 0)):>9,} cases  "
        f"{f'{int(covered[-1]):,} places covered' if covered else 'coverage unknown':>22}  "
        f"{stats.get('peak_rss_mb', '?'):>5} MB  {len(places)} crashes"
    )
    return "\n".join(
        [line, *(f"  {place}" for place in places), *([f"  inputs: {kept}"] if places else [])]
    ), bool(places)


def main() -> None:
    """Fuzz the targets that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--case", type=Path)
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "jestlab-fuzz")
    parser.add_argument("--inner", action="store_true")
    options = parser.parse_args()
    from targets import TARGETS

    names = options.targets or list(TARGETS)
    if options.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            TARGETS[names[0]](Path(folder))[1](options.case.read_bytes())
            os.chdir(HERE)
    elif options.inner:
        try:
            import atheris  # noqa: F401
        except ImportError:
            _at_random(names[0], options.seconds, options.kept)
        else:
            _guided(names[0], options.seconds, options.kept)
    else:
        crashed = False
        for name in names:
            line, bad = _line(name, options.seconds, options.kept / name)
            print(line, flush=True)
            crashed |= bad
        sys.exit(crashed)


if __name__ == "__main__":
    main()
