"""Does what a page tells its reader to do: writes its files, runs its commands and code, compares outputs.

How a page of `docs/` is written, so that all in it can be run:

    ```sh                  commands, run line by line; each has to succeed
    ```console             `$ command` lines and the output that each has to print; `…` stands for any text
    ```python              code, run in order in one namespace
    ```yaml                a part of a spec, laid over a small study, which then has to load
    any of them, with a first line `# NAME.EXT` (or `// NAME.EXT`): a file, written before all else
    ```text                an output, only to be read

Other code is not run: tests/test_docs.py lists each such block with its reason.
"""

import functools
import itertools
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from jestlab.platform.cli import cli, main
from jestlab.platform.lab.settings import Settings
from jestlab.platform.spec.json_schema import spec_schema
from jestlab.platform.spec.load import load
from jestlab.platform.spec.yaml import Document

# The quickstart in seconds instead of minutes: the same runs, on less data and for fewer steps.
SHRINK = (
    "base.data.train.examples=1024",
    "base.data.benchmark.classification_examples=96",
    "base.data.benchmark.retrieval_examples=32",
    "base.schedule.examples_seen=256",
    "base.evaluation.points=2",
    "base.evaluation.shots=2",
    "base.model={vision: {width: 16, depth: 1, heads: 2, patch_size: 8, pooling: mean},"
    " text: {width: 16, heads: 2, pooling: mean}, embedding_dim: 16}",
)
FEW = ("laion_transfer",)
"""The study that stands for all of the paper's."""
_REFERENCE = "runs.reference.schedule.examples_seen=256"
SHRUNK: dict[str, Sequence[str]] = {
    "quickstart": (*SHRINK, _REFERENCE),
    "cnn.yaml": ("base.steps=40",),
    # Runs of one width are one run: PyTorch takes seconds to import. The page's later commands draw.
    "xor.yaml": ("runs.medium.width=4", "runs.wide.width=4", "reports=[]"),
    "folders.yaml": SHRINK[3:],
    "paper": (*SHRINK, *(f"studies.{name}.{_REFERENCE}" for name in FEW)),
}
"""Study → overrides for its launch, in addition to the number of seeds."""

_FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|//) (~?[\w./-]+\.\w+)\b")
_SHELL = re.compile(r"[|&;<>$`*]")
_PART_OF = {
    "name": "part",
    "runs": {
        "reference": {"initialization": 1},
        "uniform": {},
        "joint": {"selection": {"rule": "joint", "reference": "reference"}},
        "independent": {"selection": {"rule": "independent", "reference": "reference"}},
    },
}
"""The study that parts of specs are laid over."""


@functools.cache
def schema_validator() -> jsonschema.Draft7Validator:
    """Return a validator of the JSON Schema of specs."""
    return jsonschema.Draft7Validator(spec_schema())


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    Attributes:
        language: Of its info string.
        title: The rest of its info string.
        text: The code.
        line: Where it begins.
    """

    language: str
    title: str
    text: str
    line: int

    @property
    def first(self) -> str:
        """Its first line, without the comment at its end."""
        return self.text.partition("\n")[0].partition("   #")[0]

    @property
    def file(self) -> str | None:
        """Name of the file that it is, or None."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def is_run(self) -> bool:
        """Whether anything is done with it."""
        runs = self.language in ("sh", "console", "python", "yaml") and not self.title
        return runs or self.file is not None


def blocks(page: str) -> list[Block]:
    """Find the blocks of code in a page."""
    return [
        Block(match[2], match[3].strip(), textwrap.dedent(match[4]), page.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(page)
    ]


class Reader:
    """Somebody who does what pages say, in a folder of their own, with jestlab's environment activated."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Go to the folder."""
        self.folder = folder
        self.names: dict[str, object] = {"__name__": "__main__"}
        self._capsys = capsys
        monkeypatch.chdir(folder)
        for variable in [name for name in os.environ if name.startswith("JESTLAB_")]:
            monkeypatch.delenv(variable)
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        monkeypatch.delenv("COLUMNS", raising=False)  # as into a pipe: whole
        monkeypatch.setenv("JESTLAB_POLL_SECONDS", "0.2")
        monkeypatch.setenv("JESTLAB_BACKOFF_SECONDS", "0.1")

    def write(self, found: Sequence[Block]) -> None:
        """Write the files among blocks."""
        for block in found:
            if block.file is not None:
                path = self.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")

    def do(self, block: Block) -> None:
        """Do what a block says."""
        if block.file is not None:
            if block.language == "yaml" and block.file.startswith("~"):
                Settings.find({"JESTLAB_CONFIG": str(self.folder / block.file)})
            elif block.language == "yaml":
                self.load(Path(block.file))
        elif block.language == "sh":
            for line in commands(block.text):
                self.run(line)
        elif block.language == "console":
            self.compare(block.text)
        elif block.language == "python":
            exec(compile(block.text, f"block in line {block.line}", "exec"), self.names)
        elif block.language == "yaml":
            self.part(block)

    def check(self, block: Block) -> None:
        """Check a block without running it: commands parse, specs load, Python compiles."""
        if block.language in ("sh", "console"):
            prompts = re.findall(r"^\$ (.*)$", block.text, re.MULTILINE)
            for line in prompts if block.language == "console" else commands(block.text):
                parse(line)
        elif block.language == "python":
            compile(block.text, f"block in line {block.line}", "exec")
        else:
            self.do(block)

    def part(self, block: Block) -> None:
        """Check a part of a spec."""
        part = Document(block.text).value
        runs = {**_PART_OF["runs"], **(part.get("runs") or {})}  # type: ignore[dict-item]
        path = self.folder / "part.yaml"
        path.write_text(yaml.safe_dump({**_PART_OF, **part, "runs": runs}), encoding="utf-8")
        self.load(path)

    @staticmethod
    def load(path: Path) -> None:
        """Load a spec, and check it by the JSON Schema, as editors do."""
        load(str(path))
        schema_validator().validate(Document(path.read_text(encoding="utf-8")).value)

    def run(self, line: str, succeeds: bool = True) -> str:
        """Run a command line; return what it prints.

        Lines that are jestlab's alone are run in this process, which saves the time to start.
        """
        words = shlex.split(line, comments=True)
        if words[0] != "jestlab" or _SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line)):
            done = subprocess.run(
                ["bash", "-c", line],
                capture_output=True,
                text=True,
                timeout=300,
                env=dict(os.environ),  # else readline's COLUMNS is inherited, which Python does not see
            )
            out, error, code = done.stdout, done.stderr, done.returncode
        else:
            self._capsys.readouterr()
            with pytest.raises(SystemExit) as stopped:
                main([*words[1:], *self._shrinking(words)])
            out, error = self._capsys.readouterr()
            code = int(stopped.value.code or 0)
        assert not succeeds or code == 0, f"{line}\n{out[-2000:]}{error[-2000:]}"
        return out if succeeds else out + error

    def _shrinking(self, words: Sequence[str]) -> list[str]:
        """Return the options that make a launch of one of our studies small."""
        if words[1:2] != ["launch"] or words[2] not in SHRUNK:
            return []
        changes = (*SHRUNK[words[2]], "seeds=1")
        return [word for change in changes for word in ("--set", change)]

    def compare(self, transcript: str) -> None:
        """Run the commands of a transcript, and compare what they print with what it shows."""
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE):
            printed = self.run(command, succeeds=False)
            pattern = ".*?".join(re.escape(" ".join(part.split())) for part in shown.split("…"))
            pattern = re.sub(r"(\\ )?\.\*\?(\\ )?", ".*?", pattern)
            got = " ".join(printed.split())
            assert re.fullmatch(pattern.strip(), got, re.DOTALL), f"{command}\nprinted: {got}\nshown: {shown}"


def commands(text: str) -> list[str]:
    """Split a block of commands into lines; a backslash continues one, and a comment is none."""
    joined = text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if shlex.split(line, comments=True)]


def parse(line: str) -> None:
    """Parse the `jestlab` commands of a shell line, as far as click does before it runs them.

    Raises:
        click.UsageError: A verb, an option, or an argument is wrong.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = list(lexer)
    for operator, command in itertools.groupby(words, lambda word: set(word) <= set("|&;<>")):
        given = list(command)
        if operator or given[0] != "jestlab":
            continue
        context = cli.make_context("jestlab", given[1:])
        rest = [*context._protected_args, *context.args]
        found: click.Command | None = cli
        while isinstance(found, click.Group):
            name, found, rest = found.resolve_command(context, rest)
            assert found is not None
            context = found.make_context(name, rest, parent=context)
            rest = [*context._protected_args, *context.args]
