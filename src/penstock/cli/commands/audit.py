"""The `audit` command."""

from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.shared_flags import AsJson

EXAMPLES = """
Examples:

- `penstock audit "llama-3.1-70b fp16 on 1x h100: 2800 tok/s"`
- `penstock audit "The MI300X has 2.4x the memory of an H100 and rents for 30% less."`
- `penstock audit article.md  # every sentence with a figure; what is not read is listed`
- `penstock audit answer.csv --json  # a tender: model, on, precision, concurrency, tok/s, tpot_ms, usd_per_hour`
"""


def audit_command(
    claims: Annotated[
        str, Flag(positional=True, help="A sentence in quotes, a text file, or a tender as CSV.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Is this figure possible?

    Reads specs, ratios, sizes, fits, speeds, prices and costs, and judges them by physics, data sheets and all
    published results and offers of the catalog. Verdicts are impossible, contradicted, implausible, undetermined, not
    read, plausible and confirmed. Exits 1 if one is impossible, contradicted or implausible, and 4 if none could be
    judged.
    """
    from penstock.api.audit import audit
    from penstock.cli.console import Watch, show

    with Watch("checking claims"):
        answer = audit(claims)
    show(answer, as_json=as_json)


audit_command.__doc__ = f"{audit_command.__doc__}\n{EXAMPLES}"
