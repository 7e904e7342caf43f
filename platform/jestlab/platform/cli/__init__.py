"""The command line: one file a verb, loaded only when it is called, so that `--help` stays quick."""

from __future__ import annotations

import importlib
import sys

import click

from jestlab.platform.errors import UserError, nearest

VERBS = {
    "list": "Studies that can be launched.",
    "show": "One study: its question, runs, axes and reports.",
    "plan": "What a launch would run, and what it costs.",
    "costs": "What an example costs in each run, part by part.",
    "launch": "Run a study and write its tables and plots.",
    "status": "States of experiments and of their runs.",
    "watch": "Runs as they run: loss, speed, time left.",
    "logs": "The log of a run.",
    "cancel": "Stop runs, wherever they are.",
    "retry": "Run again what failed.",
    "query": "SQL over the results store, or rows of a view by a condition; read-only.",
    "diff": "Two runs side by side: config, code, scores, cost.",
    "table": "The comparison table of an experiment.",
    "plot": "Learning curves, the Pareto plot and learnability of an experiment.",
    "report": "All of an experiment as one page that opens anywhere.",
    "published": "Results that others have published: in, out, and which cannot be right.",
    "data": "Make and inspect image-text shards.",
    "db": "Upgrade, check, back up and restore the results store.",
    "weights": "Public weights, and those of runs: in and out.",
    "note": "Notes about experiments and runs.",
    "tag": "Tags of experiments and runs.",
    "gc": "What a lab can do without: found, and deleted on demand.",
    "export": "A lab, or some experiments, as one archive.",
    "import": "Take an archive into a lab.",
    "doctor": "Whether all that is needed is there, and what to do.",
}

_MODULES = {"import": "import_archive", "export": "export_archive"}
"""Verbs whose modules have other names: `import` is a word of Python's."""

EPILOG = """\b
Example:
  jestlab launch quickstart     # train, compare, tabulate, plot
  jestlab table quickstart      # the table again, from the store
"""


class _Verbs(click.Group):
    """Imports a verb's module when the verb is used, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the work, not of the alphabet."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's `command`, or None for an unknown verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"jestlab.platform.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verb in the error."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no verb {args[0]!r}: {nearest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="jestlab")
def cli(debug: bool) -> None:
    """Launch experiments from a spec, query their results, regenerate their tables and plots."""


def main(args: list[str] | None = None) -> None:
    """Entry point of the console script: an error is one line on standard error, exit code 1 (usage: 2)."""
    argv = sys.argv[1:] if args is None else args
    try:
        sys.exit(cli.main(argv, prog_name="jestlab", standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(2)
    except click.UsageError as error:
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        click.echo(f"jestlab: {' '.join(error.format_message().split())}{hint}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("jestlab: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # `jestlab query … | head`: the reader left, and that is no error
        sys.exit(0)
    except (UserError, ValueError, OSError) as error:
        if "--debug" in argv:
            raise
        click.echo("jestlab: " + " ".join(str(error).split()), err=True)
        sys.exit(1)
