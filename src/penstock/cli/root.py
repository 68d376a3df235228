"""Defines the root command, with its command groups, exit codes and one-line errors."""

import io
import os
import signal
import sys
import warnings
from typing import Final

import click

from penstock import __version__
from penstock.cli.declared_commands import DeclaredGroup
from penstock.cli.flags.renamed_options import refuse_renamed
from penstock.errors import PenstockError, UnknownArchitecture, UsageError

EXIT_USAGE = 2
EXIT_EXPECTED_FAILURE = 3
EXIT_NOT_CHECKED = 4
EXIT_BUG = 70
"""Exit code of a bug, which is EX_SOFTWARE of sysexits.h. Python's exit code for an exception is 1, but here 1 means a
negative verdict."""

_PANELS: Final = {
    "Plan": ("fit", "predict", "guide", "plan", "inspect", "tax", "catalog", "workload"),
    "Run": ("simulate", "emulate", "route", "top", "receipts", "bill", "export", "mcp"),
    "Prove": ("accuracy", "audit", "preflight", "doctor", "fp8", "bench", "results", "calibrate"),
}


def _print_version(context: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested:
        click.echo(f"penstock {__version__}")
        context.exit()


def _print_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    from click.shell_completion import get_completion_class

    from penstock.cli.bash_completion import BashCompletion

    made = BashCompletion if shell == "bash" else None if shell is None else get_completion_class(shell)
    if made is not None:
        click.echo(made(context.command, {}, "penstock", "_PENSTOCK_COMPLETE").source())
        context.exit()


app = DeclaredGroup(
    "penstock",
    help="Which AMD or NVIDIA GPUs serve your LLM, how fast, for how much, and will it start?\n\n"
    "Exit codes: 0 success, 1 negative verdict, 2 usage error, 3 expected failure, 4 not checked, 70 bug.",
    epilog="Try: `penstock predict llama-3.3-70b --on h200,mi355x --precision fp8`",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and stop.",
        ),
        click.Option(
            ["--completion"],
            type=click.Choice(["bash", "zsh", "fish"]),
            is_eager=True,
            expose_value=False,
            callback=_print_completion,
            help='Print the completion of a shell and stop: `eval "$(penstock --completion bash)"`.',
        ),
    ],
    panels=_PANELS,
)


def main() -> None:
    """Run the command line.

    Expected failures print one line and exit with 2, 3 or 4. A bug prints its traceback and exits with 70.
    """
    _prepare_streams()
    warnings.formatwarning = _one_line
    # Matrices are small, so OpenBLAS threads would only spin. A number of threads that the user set is kept.
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        refuse_renamed(sys.argv[1:])
        app()
    except PenstockError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_exit_code(error))
    except BrokenPipeError:
        # The reader of the pipe has closed it (`| head`); redirect stdout so that exit does not write to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception:  # noqa: BLE001 - the outermost frame: all it adds is the exit code
        import traceback

        traceback.print_exc()
        sys.exit(EXIT_BUG)


def _exit_code(error: PenstockError) -> int:
    """Return the exit code of an expected error. Of a model whose shape no reader knows, nothing was checked."""
    if isinstance(error, UnknownArchitecture):
        return EXIT_NOT_CHECKED
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_EXPECTED_FAILURE


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    return f"Warning: {message}\n"


def _prepare_streams() -> None:
    """Exit quietly if the reader of a pipe closes it. Print `?` for characters that the encoding lacks."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
