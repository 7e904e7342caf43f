"""The command line. A verb's module is imported only when the verb is used, so that `--help` is fast."""

import importlib
import os
import sys
from gc import set_threshold
from typing import ClassVar

import click
from click.shell_completion import CompletionItem

SECTIONS = {
    "Author": {
        "init": "Create a starter study.",
        "keys": "List spec and config keys.",
        "schema": "Print the JSON Schema of specs for text editors.",
        "list": "List the studies that can be launched by name.",
        "show": "Show a study with its question, runs, and reports.",
        "plan": "List the runs of a launch and their costs, without running them.",
        "costs": "Show the training cost per example of each run, by component.",
        "register": "Register a study's claims before its first run.",
    },
    "Run": {
        "launch": "Run a study and write its tables and plots.",
        "attach": "Follow a running launch.",
        "cancel": "Stop active runs on any machine.",
        "retry": "Retry failed runs.",
        "trust": "Allow the code of an imported experiment to be executed.",
    },
    "Inspect": {
        "status": "Show the states and costs of experiments and runs.",
        "watch": "Follow runs live: loss, speed, time left.",
        "logs": "Print or follow the log of a run.",
        "serve": "Start the web interface.",
        "query": "Query the results store (read-only) by SQL or a condition.",
        "diff": "Compare two runs: config, code, scores, costs.",
        "show-batch": "Show selected and rejected examples of a run.",
        "note": "Add or list notes on experiments and runs.",
        "tag": "Tag experiments and runs, or list their tags.",
    },
    "Publish": {
        "table": "Print the tables of experiments and of the paper.",
        "plot": "Draw learning curves, Pareto plots, and other figures.",
        "report": "Write an experiment's report as one HTML page.",
        "published": "Import, list, export, and remove published results.",
        "export": "Write experiments to an archive or to another format.",
        "accept": "Accept results from different code or data versions.",
        "retract": "Retract results of runs and of the runs that depend on them.",
    },
    "Maintain": {
        "data": "Make, fetch, pack, and inspect image-text datasets.",
        "weights": "Inspect, import, and export weights.",
        "import": "Add the experiments of an archive to a lab.",
        "adopt": "Import runs from W&B, MLflow, TensorBoard, or CSV.",
        "db": "Check, back up, and restore the results store.",
        "gc": "Find and delete unreferenced files.",
        "doctor": "Check the installation and the lab.",
        "completion": "Print the shell completion script.",
    },
}
"""Section of the main help → verb → line of help."""

_CONTINUE = "continue"  # not for users: the command of launchers that are jobs

_MODULES = {
    "authoring": ("init", "keys", "schema"),
    "studies": ("list", "show", "plan", "costs", "register"),
    "launch": ("launch", "retry", "cancel", _CONTINUE),
    "status": ("status", "watch", "attach"),
    "results": ("table", "plot", "report", "show-batch"),
    "annotations": ("note", "tag", "accept", "retract", "trust"),
    "export": ("export", "import"),
}
"""Module → verbs, if it contains several; every other verb is in the module of the same name."""


class SubcommandGroup(click.Group):
    """A verb with subcommands, which are listed in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the subcommands."""
        return [*self.commands]


class _AllVerbs(click.Group):
    """The group of all verbs."""

    verbs: ClassVar = {verb: about for verbs in SECTIONS.values() for verb, about in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of `SECTIONS`."""
        return [*self.verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of a verb; None for an unknown verb."""
        if cmd_name not in self.verbs and cmd_name != _CONTINUE:
            return None
        name = cmd_name.replace("-", "_")
        module = next((module for module, verbs in _MODULES.items() if cmd_name in verbs), name)
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), f"{name}_command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete options and verbs without importing a verb's module."""
        verbs = [CompletionItem(verb) for verb in self.verbs if verb.startswith(incomplete)]
        return [*click.Command.shell_complete(self, ctx, incomplete), *verbs]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; the error for an unknown verb suggests the most similar one."""
        if args and args[0] not in (*self.verbs, _CONTINUE) and not args[0].startswith("-"):
            from jestlab.platform.errors import nearest

            ctx.fail(f"unknown verb {args[0]!r}: {nearest(args[0], self.verbs)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of verbs without importing a verb's module."""
        longest = max(map(len, self.verbs))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(longest), about) for verb, about in verbs.items()])


EPILOG = """\b
Examples:
  jestlab launch quickstart     # train, compare, write tables and plots
  jestlab table quickstart      # print the table again, from the store
"""


@click.group(
    cls=_AllVerbs,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="jestlab")
def cli(debug: bool) -> None:
    """Launch experiments from a spec, query their results, and regenerate their tables and plots."""


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit.

    Each error is printed as one line on standard error; a spec may have several. The exit code is then 1; for
    wrong usage it is 2, and after an interrupt 130.

    Args:
        args: Arguments after `jestlab`; by default, those of this process.
    """
    # Imports create many objects but little garbage; looking for it takes 10% of a short command's time.
    set_threshold(20_000, 20, 20)
    argv = sys.argv[1:] if args is None else args
    if sys.stdout is None:  # closed by the shell: `jestlab … >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 — open until the end
    if "_JESTLAB_COMPLETE" in os.environ:
        from jestlab.platform.cli.completion import complete

        sys.exit(complete(cli))
    _handle_interrupts()
    try:
        sys.exit(cli.main(argv, prog_name="jestlab", standalone_mode=False, obj=list(argv)) or 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # `jestlab query … | head`: not an error
        sys.exit(0)
    except (click.ClickException, click.Abort, KeyboardInterrupt, Exception) as error:
        sys.exit(_print_error(error, debug="--debug" in argv))


def _handle_interrupts() -> None:
    """Let SIGINT stop this process even if its shell made it ignore the signal (`nohup jestlab … &`)."""
    import signal
    import threading

    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _print_error(error: BaseException, debug: bool) -> int:
    """Print an error and return the exit code; raise an unexpected one, and with `debug` most others."""
    from jestlab.platform.cli.output import say
    from jestlab.platform.errors import UserError, UserErrors, sentence

    code, lines = 1, tuple[str, ...]()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        return 2
    if isinstance(error, click.UsageError):
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        code, lines = 2, (error.format_message() + hint,)
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        code, lines = 130, ("interrupted",)
    elif debug:
        raise error
    elif isinstance(error, UserErrors):
        lines = error.lines
    elif isinstance(error, UserError | ValueError | OSError | MemoryError):
        lines = (sentence(error),)
    elif isinstance(error, ModuleNotFoundError):
        from jestlab.platform.dependencies import of_module

        if (missing := of_module(error.name)) is None:
            raise error
        lines = (missing,)
    else:
        raise error
    for line in lines:
        say(f"jestlab: {' '.join(line.split())}", err=True)
    return code
