"""The command line: parses, calls, prints; no arithmetic. Modules of commands are imported when used."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

import click
from click.shell_completion import CompletionItem

from analyzer import __version__
from analyzer.cli.options import files
from analyzer.errors import AnalyzerError, UsageError

# The last two are a shell's own for a process that a signal ended: 128 + SIGINT (2), 128 + SIGTERM (15).
EXIT_FINE, EXIT_FAILED, EXIT_UNUSABLE, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_TERMINATED = 0, 1, 2, 3, 130, 143

# The disk, or one's share of it, is full.
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

# In the order of the help; the text stands here so that help imports no command but the default one.
COMMANDS = {
    "run": "Profile, decide, report: the default command.",
    "check": "CI gate: findings, exit status, machine-readable formats.",
    "compare": "Two or more reports side by side.",
    "render": "Any format from a saved report; measures nothing.",
    "devices": "The hardware catalogue, each figure with its source.",
    "generate": "A language model that generates: prefill, decode, cache, what fits.",
    "capacity": "Traffic and a latency limit: which instances, how many, dollars a month.",
    "apply": "The plan as a session: annotated model, settings, program, proof.",
    "fleet": "Many models on many devices, on this machine or a Ray cluster: one index page.",
    "calibrate": "Measure this machine's ceilings and keep them.",
    "doctor": "What this machine has, what works on it, what to do about the rest.",
    "ops": "The cost rules: formula, basis, what is covered.",
    "rules": "The CI rules: what, why, how to fix.",
}
DEFAULT = "run"
# Several small commands share a module; of the others each has its own, of its name.
MODULES = {
    **dict.fromkeys(("run", "generate", "capacity", "apply", "render", "compare"), "analyses"),
    **dict.fromkeys(("devices", "ops", "rules", "calibrate", "doctor"), "catalogues"),
}
# By then what was in the signal's way has ended.
_AGAIN_S = 0.05


# A KeyboardInterrupt, so that it goes past every ``except Exception``, as Ctrl-C does.
class Terminated(KeyboardInterrupt):
    """The system or a supervisor asked the program to end."""


def clean_up_on_sigterm() -> None:
    """Have SIGTERM end children and temporary folders as Ctrl-C does."""

    # By default SIGTERM ends the process at once: no ``finally`` runs, and the measuring child lives on.
    def end(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    sys.unraisablehook = _reraised


def _reraised(raised: sys.UnraisableHookArgs) -> None:
    """Send a signal again soon that came while a finaliser or a callback ran, with which it is lost."""
    numbers = {Terminated: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
    if raised.exc_type in numbers:
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), numbers[raised.exc_type]))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(raised)


class CommandLine(click.Group):
    """A group whose commands are imported when used; what names no command is a MODEL for ``run``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        """Return all commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"analyzer.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        command.short_help = COMMANDS[cmd_name]  # what a shell shows with a completed name
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of arguments that name no command; what follows ``--`` is the script's own."""
        if "--" in args:
            end = args.index("--")
            args = [*args[:end], *(f"--script-arg={argument}" for argument in args[end + 1 :])]
        if args and args[0] not in COMMANDS and args[0] not in ("--help", "-h", "--version"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands, and what the default command takes: its options and files."""
        offered = super().shell_complete(ctx, incomplete)
        run = self.get_command(ctx, DEFAULT)
        assert run is not None
        if not incomplete.startswith("-"):
            return [*offered, *files(ctx, run.params[0], incomplete)]
        seen = {item.value for item in offered}
        return [*offered, *(item for item in run.shell_complete(ctx, incomplete) if item.value not in seen)]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the default command's usage."""
        formatter.write_usage(ctx.command_path, "MODEL [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="   or: ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the commands, then the default command's options."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        run = self.get_command(ctx, DEFAULT)
        assert run is not None
        with formatter.section("Options of the default command"):
            # The first is MODEL, which the usage line shows.
            rows = (parameter.get_help_record(ctx) for parameter in run.get_params(ctx)[1:])
            formatter.write_dl([row for row in rows if row is not None])


@click.group(
    cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="analyze")
def command_line() -> None:
    """Says whether a PyTorch model belongs on a CPU or a GPU, for which operators, from which batch, and why.

    MODEL is model.py, model.py:Name, package.module:Name, model.onnx, model.pt2, timm:NAME, torchvision:NAME or
    a folder with Hugging Face's config.json.

    \b
      analyze model.py --batch 64              measure here, predict an L4, write reports/model.html
      analyze model.py --gpu a100 --no-run     execute nothing: counts and predictions
      analyze check model.py                   for CI: what would run on the CPU of a GPU server
    """  # noqa: D301 - Click wants the escape, not a backslash


def run_command_line(arguments: Sequence[str]) -> int:
    """Run a command; return the exit status: 0 fine, 1 a check failed, 2 unusable input, 3 a fault of ours."""
    show_what_can_be_shown()
    # Not standalone: Click would print errors in its own words and end the process with its own statuses.
    try:
        _check_working_folder()
        status = command_line.main(args=list(arguments), prog_name="analyze", standalone_mode=False)
        if sys.stdout is not None:  # None in a process without a console (pythonw)
            sys.stdout.flush()  # here, where a full disk or a closed pipe can still be told
    except AnalyzerError as error:
        print_error(error.message, error.hint)
        return EXIT_UNUSABLE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "analyze"
        print_error(error.format_message(), f"`{path} --help` lists what there is.")
        return EXIT_UNUSABLE
    except click.ClickException as error:
        print_error(error.format_message(), None)
        return EXIT_UNUSABLE
    except (KeyboardInterrupt, click.Abort) as error:
        click.echo("interrupted; nothing was written", err=True)
        # Click raises Abort from a KeyboardInterrupt within a command (click/core.py, Command.main).
        terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
        return EXIT_TERMINATED if terminated else EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) went away, which is no fault; without standard error Python cannot
        # complain about what it fails to flush on its way out.
        sys.stderr.close()
        return EXIT_FINE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return _disk_full(error)
        import traceback

        say(traceback.format_exc().rstrip(), err=True)
        print_error(
            "this is a fault of analyze itself",
            "Please report it with the lines above and the model if you can.",
        )
        return EXIT_FAULT
    return status if isinstance(status, int) else EXIT_FINE


def _check_working_folder() -> None:
    """Refuse to start where no relative path means anything."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"The working folder cannot be used: {error.strerror}.",
            hint="It may be gone: change to another.",
        ) from error


def _disk_full(error: OSError) -> int:
    """Say that the disk behind standard output or the temporary folder is full, which is no fault of ours."""
    print_error(
        f"{error.filename or 'Standard output'} cannot be written: {error.strerror}.",
        "Make room, or write elsewhere.",
    )
    if not error.filename and sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest on its way out
    return EXIT_UNUSABLE


def print_error(message: str, hint: str | None) -> None:
    """Print one clear message and its hint on standard error."""
    say(message, label=click.style("error:", fg="red", bold=True), err=True)
    if hint:
        say(hint, label=click.style("hint:", fg="cyan"), err=True)


def say(text: str, *, label: str = "", err: bool = False) -> None:
    """Print what may hold a stranger's names: no control characters, no line that commands a CI server."""
    from analyzer.text import loggable

    # The label is ours, and coloured with control characters.
    click.echo(" ".join(filter(None, (label, loggable(text)))), err=err)


def show_what_can_be_shown() -> None:
    """Have both streams replace what their encoding lacks: a locale of ASCII or Latin-1 is no fault."""
    for stream in (sys.stdout, sys.stderr):
        # A stream that somebody else put in their place may have nothing of the kind.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
