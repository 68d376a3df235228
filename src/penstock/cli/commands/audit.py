"""The `audit` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.shared_flags import AsJson

EXAMPLES = """
Examples:

- `penstock audit "llama-3.1-70b fp16 on 1x h100: 2800 tok/s"`
- `penstock audit "h100 fp8: 3958 TFLOPS"`
- `penstock audit "mi300x memory: 1.5x of h100"`
- `penstock audit --init > claims.yaml  # a file to start from`
- `penstock audit claims.yaml --html audit.html`
- `penstock audit --sheet answer.csv  # model, on, precision, concurrency, tok/s, tpot_ms, usd_per_hour`
- `penstock audit --ledger  # claims of five articles`
"""


def audit_command(
    claims: Annotated[
        str | None,
        Flag(positional=True, help="A YAML file of claims, or one claim as a quoted sentence.", show_default=False),
    ] = None,
    sheet: Annotated[
        Path | None,
        Flag(
            name="--sheet",
            help="A CSV file with a vendor's answers to a tender, one setup per row.",
            show_default=False,
        ),
    ] = None,
    ledger: Annotated[
        bool, Flag(name="--ledger", help="Audit the shipped ledger: the claims of five articles.")
    ] = False,
    init: Annotated[bool, Flag(name="--init", help="Print an example file of claims and exit.")] = False,
    schema: Annotated[bool, Flag(name="--schema", help="Print a JSON schema of claim files for editors.")] = False,
    html: Annotated[
        Path | None, Flag(name="--html", help="Write the audit as one self-contained page.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Are these claims true?

    Checks claims about specs, ratios, fits, speeds, prices, savings, releases and dates against data sheets, physics,
    measurements and the claim's own inputs. Each verdict is impossible, contradicted, implausible, plausible, confirmed
    or undetermined. Each verdict comes with its arithmetic, its sources, and the condition under which the claim would
    be true. Exits 1 if a claim is impossible or contradicted.
    """
    if init:
        from penstock.audit.parsing.claims_file import EXAMPLE_CLAIMS

        click.echo(EXAMPLE_CLAIMS, nl=False)
        return
    if schema:
        from penstock.audit.parsing.claims_file import CLAIMS_FILE
        from penstock.report.drawing.plain_json import to_json

        click.echo(to_json(CLAIMS_FILE.schema()))
        return
    from penstock.api.audit import audit
    from penstock.cli.console import Watch, show, write_file

    with Watch("checking claims"):
        answer = audit(claims, sheet=sheet, ledger=ledger)
    if html is not None:
        from penstock.report.audit.page import audit_html

        write_file(html, audit_html(answer.audited, f"Audit of {sheet.name if sheet else claims or 'the ledger'}"))
    show(answer, as_json=as_json)


audit_command.__doc__ = f"{audit_command.__doc__}\n{EXAMPLES}"
