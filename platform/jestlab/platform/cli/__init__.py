"""The command line: a module is loaded only when a verb of it is called, so that `--help` stays quick."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from pathlib import Path

import click

from jestlab.platform.cli.help import with_headings
from jestlab.platform.cli.output import say
from jestlab.platform.dependencies import of_module
from jestlab.platform.errors import UserError, UserErrors, nearest, sentence

VERBS = {
    "init": "Write a study to begin with.",
    "keys": "Show what a spec may hold, key by key.",
    "list": "List the studies that can be launched by name.",
    "show": "Show a study: its question, runs, axes and reports.",
    "plan": "Show what a launch would run, and what it costs.",
    "costs": "Show what an example costs in each run, part by part.",
    "launch": "Run a study and write its tables and plots.",
    "status": "Show the states and costs of experiments and runs.",
    "attach": "Show a launch that goes on elsewhere, to its end.",
    "watch": "Follow runs live: loss, speed, time left.",
    "serve": "Serve pages over the lab, live.",
    "logs": "Print or follow the log of a run.",
    "register": "Register a study's claims before its first run.",
    "cancel": "Stop runs, wherever they are.",
    "retry": "Retry failed runs.",
    "query": "Query the results store in SQL or by a condition; read-only.",
    "diff": "Compare two runs: config, code, scores, costs.",
    "table": "Print the tables of experiments and of the paper.",
    "plot": "Draw learning curves, Pareto plots and other figures.",
    "report": "Write an experiment as one HTML page.",
    "show-batch": "Look at what a run selected and rejected.",
    "published": "Import, list, export and check published results.",
    "data": "Make, fetch and inspect image-text shards.",
    "db": "Check, back up, and restore the results store.",
    "weights": "Inspect, import and export weights.",
    "note": "Add notes to experiments and runs, and list them.",
    "tag": "Tag experiments and runs.",
    "accept": "Accept that runs were made by other code or data.",
    "retract": "Retract the results of runs, and what rests on them.",
    "adopt": "Take in runs of W&B, MLflow, TensorBoard, CSV.",
    "gc": "Find and delete unreferenced files.",
    "export": "Write a lab, or some experiments, to an archive.",
    "import": "Add the experiments of an archive to a lab.",
    "trust": "Let an imported experiment be executed.",
    "doctor": "Check the installation and the lab.",
    "completion": "Print the script that completes commands in a shell.",
}

_MODULES = {
    "studies": ("list", "show", "costs"),
    "launch": ("launch", "retry", "cancel"),
    "status": ("status", "watch"),
    "results": ("table", "plot", "report"),
    "annotations": ("note", "tag"),
    "export": ("export", "import"),
}
"""Modules of several verbs; every other verb is alone in the module of its name."""

_MODULE_OF = {verb: module for module, verbs in _MODULES.items() for verb in verbs}

EPILOG = """\b
Examples:
  jestlab launch quickstart     # train, compare, write tables and plots
  jestlab table quickstart      # print the table again, from the store
"""


class _Verbs(click.Group):
    """Imports a verb's module when the verb is used, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of the work, not of the alphabet."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a verb; None for an unknown verb."""
        if cmd_name not in VERBS:
            return None
        python_name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"jestlab.platform.cli.{_MODULE_OF.get(cmd_name, python_name)}")
        command: click.Command = getattr(module, f"{python_name}_command")
        return with_headings(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, with the nearest verb in the error."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"unknown verb {args[0]!r}: {nearest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([*VERBS.items()])


@click.group(cls=_Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="jestlab")
def cli(debug: bool) -> None:
    """Launch experiments from a spec, query their results, and regenerate their tables and plots."""


def main(args: list[str] | None = None) -> None:
    """Run the command line; an error is one line on standard error, with exit code 1 (usage: 2).

    Several mistakes in a spec are a line each.

    Args:
        args: Words after `jestlab`; those of this process by default.
    """
    argv = sys.argv[1:] if args is None else args
    if sys.stdout is None:  # a shell may close it
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 — until the end
    if "_JESTLAB_COMPLETE" in os.environ:
        from jestlab.platform.cli import completing

        completing.serve(cli, VERBS)
        sys.exit(0)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells let background processes ignore SIGINT (`nohup jestlab … &`); it has to stop this one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(cli.main(argv, prog_name="jestlab", standalone_mode=False, obj=list(argv)) or 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        sys.exit(2)
    except click.UsageError as error:
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        say(f"jestlab: {' '.join(error.format_message().split())}{hint}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        say("jestlab: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # `jestlab query … | head`: the reader has left, which is no error
        sys.exit(0)
    except ModuleNotFoundError as error:
        if "--debug" in argv or (missing := of_module(error.name)) is None:
            raise
        say(f"jestlab: {missing}", err=True)
        sys.exit(1)
    except (UserError, ValueError, OSError, MemoryError) as error:
        if "--debug" in argv:
            raise
        for line in error.lines if isinstance(error, UserErrors) else (sentence(error),):
            say("jestlab: " + " ".join(line.split()), err=True)
        sys.exit(1)
