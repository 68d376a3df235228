"""Names the commands that follow a plan, with the files that the plan wrote."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote


def next_steps(file: Path, *, fleet: Path | None, rfp: Path | None, vendors: Sequence[str]) -> dict[str, str]:
    """Map the purpose of each next command to the command."""
    steps = {}
    if fleet is None:
        plan = f"penstock plan {quote(str(file))}"
        steps["write the fleet and the request for proposals"] = f"{plan} --fleet fleet.yaml --rfp request"
        steps["write the page for finance (needs penstock[report])"] = f"{plan} --html report.html"
    else:
        name = quote(str(fleet))
        steps["check that every pool starts, and see each launch"] = f"penstock preflight --fleet {name}"
        steps["replay the fleet with other arrivals"] = f"penstock simulate --fleet {name}"
        filled = f"once the replicas run and `endpoints` in {fleet} has their addresses"
        steps[f"{filled}, route to them"] = f"penstock route {name}"
        steps["or configure your own router (litellm, envoy, sglang-router)"] = f"penstock export {name} --to litellm"
    if rfp is not None:
        for vendor in vendors:
            accepted = quote(str(rfp / f"acceptance-{vendor}.yaml"))
            steps[f"measure what {vendor} delivers"] = f"penstock bench {accepted} --target {vendor}=http://HOST:8000"
    return steps
