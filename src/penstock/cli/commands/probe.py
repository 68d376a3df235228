"""The --probe mode of `preflight`: compares the answers of two running endpoints."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.parity.compare_answers import Parity


def run_probe(
    url: str, *, reference: str | None, against: str | None, save: str | None, served: str | None, as_json: bool
) -> None:
    """Query the server, then save its answers or compare them with a reference. Exit 1 unless they agree."""
    from penstock.cli.console import Watch
    from penstock.parity.compare_answers import ProbeVerdict, compare
    from penstock.parity.openai_client import ask, load_answers, save_answers

    if reference is not None and against is not None:
        raise UsageError("give --reference or --against, not both")
    if reference is None and against is None and save is None:
        raise UsageError("--probe needs one of --save-reference FILE, --reference FILE or --against URL")
    compared = None if reference is None else load_answers(Path(reference))
    with Watch("waiting for answers"):
        answers = ask(url, served)
        if save is not None:
            save_answers(answers, Path(save))
        if against is not None:
            compared = ask(against, None)
    if compared is None:
        click.echo(json.dumps({"saved": save}) if as_json else f"saved the answers of {answers.model} to {save}")
        return
    outcome = compare(compared, answers)
    _print(outcome, compared.model, answers.model, as_json=as_json)
    if outcome.verdict is not ProbeVerdict.SAME:
        raise click.exceptions.Exit(1)


def _print(outcome: "Parity", reference: str, asked: str, *, as_json: bool) -> None:
    if as_json:
        from penstock.report.drawing.plain_json import plain_fields, to_json

        asking = {"schema": "penstock.fp8-probe/1", "reference_model": reference, "model": asked}
        click.echo(to_json({**asking, **plain_fields(outcome)}))
        return
    from rich.text import Text

    from penstock.cli.console import stdout

    styles = {"same": "bold green", "different": "bold magenta"}
    text = Text(f"{asked} against {reference}: ")
    text.append(str(outcome.verdict), style=styles.get(outcome.verdict, "bold yellow"))
    text.append(f", {outcome.reason}")
    if outcome.prompt_drift is not None:
        decode = "-" if outcome.decode_drift is None else f"{outcome.decode_drift:.2%}"
        text.append(
            f"\n{outcome.compared_tokens:,} log-probabilities; drift {outcome.prompt_drift:.2%} in prompts, {decode} "
            f"while decoding; median difference {outcome.median_difference_nats:.4f} nats; "
            f"{outcome.flipped_choices} of {outcome.confident_choices} clear choices flipped",
            style="dim",
        )
    stdout().print(text)
