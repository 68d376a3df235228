"""The `doctor` command."""

from pathlib import Path
from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.shared_flags import AsJson


def doctor_command(
    *,
    recorded: Annotated[
        Path | None,
        Flag(
            name="--recorded",
            help="Read recorded outputs from this directory instead: rocminfo.txt, amd-smi-version.txt, "
            "amd-smi-firmware.txt, nvidia-smi.txt, nvidia-smi--L.txt, packages.txt (pip freeze).",
        ),
    ] = None,
    python: Annotated[
        str | None,
        Flag(name="--python", help="Python in which the engine is installed. Default: the one that runs Penstock."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What does this host have under its engine?

    Reads rocminfo, amd-smi, nvidia-smi, the driver, the kernel's settings and the packages of the engine's Python, and
    prints the facts that preflight's rules use. Nothing is changed. `penstock preflight --host here` uses these facts.

    Examples:

    - `penstock doctor`
    - `penstock doctor --python /opt/venv/bin/python --json > host.json`, then elsewhere
      `penstock preflight deepseek-r1 --host host.json`
    - `penstock doctor --recorded ./outputs-of-the-node`
    """
    from penstock.api.doctor import doctor
    from penstock.cli.console import Watch, show

    with Watch("reading the host"):
        answer = doctor(recorded=recorded, python=python)
    show(answer, as_json=as_json)
