"""Writes an acceptance benchmark as YAML for vendors, and reads it back strictly."""

from typing import Final

import yaml

from penstock.planning.acceptance_tests import ACCEPTANCE_VERSION, Acceptance
from penstock.reading.file_shape import FileShape

_HEAD: Final = (
    "# Acceptance benchmark. For each case, start `replicas` replicas on `nodes` nodes behind one router, which sends\n"
    "# each request to the replica with the fewest requests. At each load, send requests of `lengths` with these\n"
    "# arrivals and count the requests that meet every limit of `slo`: time to first token, mean time per further\n"
    "# output token, end to end. A load passes if at least `at_least_fraction` of all its requests, including failed\n"
    "# ones, meet the limits.\n"
)
_APART: Final = (
    "# If a case has `prefill`, its prefill replicas process the prompts and send their KV cache to the `replicas` of\n"
    "# the case, which only decode.\n"
)
ACCEPTANCE_FILE: Final = FileShape(
    of=Acceptance,
    kind="acceptance benchmark",
    written_by="penstock plan plan.yaml --rfp DIRECTORY",
    title="An acceptance benchmark, as `penstock plan --rfp` writes it",
    version=ACCEPTANCE_VERSION,
)


def write_acceptance(acceptance: Acceptance) -> str:
    """Write a benchmark that `read_acceptance` can read."""
    document = ACCEPTANCE_FILE.document(acceptance)
    for case in document["cases"]:
        if case["prefill"] is None:
            del case["prefill"]
    body: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    apart = any(case.prefill is not None for case in acceptance.cases)
    return _HEAD + (_APART if apart else "") + body


def read_acceptance(text: str, name: str) -> Acceptance:
    """Read a benchmark from text; `name` is the file name for error messages."""
    return ACCEPTANCE_FILE.read(text, name)
