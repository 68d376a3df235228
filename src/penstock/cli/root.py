"""Defines the root command, with its command groups, exit codes and one-line errors."""

import io
import logging
import os
import signal
import sys
import traceback
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.commands import (
    accuracy,
    audit,
    catalog,
    emulate,
    fit,
    fp8,
    inspect,
    plan,
    predict,
    preflight,
    receipts,
    route,
    simulate,
    tax,
    top,
    workload,
)
from penstock.cli.help import HelpOfGroup, trim_help
from penstock.errors import PenstockError, UsageError

log = logging.getLogger(__name__)

EXIT_USAGE = 2
EXIT_EXPECTED_FAILURE = 3
EXIT_BUG = 70
"""Exit code of a bug, which is EX_SOFTWARE of sysexits.h. Python's exit code for an exception is 1, but here 1 means a
negative verdict."""

app = typer.Typer(
    cls=HelpOfGroup,
    name="penstock",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Maps every LLM-inference workload to the right silicon, AMD or NVIDIA.\n\n"
    "Exit codes: 0 success, 1 negative verdict, 2 usage error, 3 expected failure, 70 bug.",
    epilog="Try: `penstock fit llama-3.1-70b --on mi300x,h100,h200,b200`",
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Declare the options that apply to `penstock` itself."""
    del version  # acted on by its callback


app.command(name="fit", rich_help_panel="Plan")(fit.fit_command)
app.command(name="predict", rich_help_panel="Plan")(predict.predict_command)
app.command(name="plan", rich_help_panel="Plan")(plan.plan_command)
app.command(name="inspect", rich_help_panel="Plan")(inspect.inspect_command)
app.command(name="tax", rich_help_panel="Plan")(tax.tax_command)
app.command(name="simulate", rich_help_panel="Run")(simulate.simulate_command)
app.command(name="emulate", rich_help_panel="Run")(emulate.emulate_command)
app.command(name="route", rich_help_panel="Run")(route.route_command)
app.command(name="top", rich_help_panel="Run")(top.top_command)
app.command(name="receipts", rich_help_panel="Run")(receipts.receipts_command)
app.command(name="accuracy", rich_help_panel="Prove")(accuracy.accuracy_command)
app.command(name="audit", rich_help_panel="Prove")(audit.audit_command)
app.command(name="preflight", rich_help_panel="Prove")(preflight.preflight_command)
app.add_typer(fp8.app, name="fp8", rich_help_panel="Prove")
app.add_typer(catalog.app, name="catalog", rich_help_panel="Plan")
app.add_typer(workload.app, name="workload", rich_help_panel="Plan")
trim_help(app)


def main() -> None:
    """Run the command line.

    Expected failures print one line and exit with 2 or 3. A bug prints its traceback and exits with 70.
    """
    _prepare_streams()
    # Matrices are small, so OpenBLAS threads would only spin. A number of threads that the user set is kept.
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except PenstockError as error:
        log.debug("expected failure", exc_info=True)
        typer.echo(f"Error: {error}", err=True)
        sys.exit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_EXPECTED_FAILURE)
    except BrokenPipeError:
        # The reader of the pipe has closed it (`| head`); redirect stdout so that exit does not write to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception:  # noqa: BLE001 - the outermost frame: all it adds is the exit code
        traceback.print_exc()
        sys.exit(EXIT_BUG)


def _prepare_streams() -> None:
    """Exit quietly if the reader of a pipe closes it. Print `?` for characters that the encoding lacks."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
