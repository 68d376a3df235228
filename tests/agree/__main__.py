"""Prints the disagreements of today by kind, and fails if a kind grew: `make agree`."""

import argparse
import resource
import sys
from typing import TextIO

from agree import bench
from agree.jobs import jobs_of


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="agree", description=__doc__)
    parser.add_argument("--short", action="store_true", help="the short bench of CI, with counts of its own")
    parser.add_argument(
        "--only", default="", help="run only jobs whose name has this text; the counts are not compared"
    )
    parser.add_argument("--record", action="store_true", help="write the counts, larger ones too")
    parser.add_argument("--accept-fall", action="store_true", help="write the counts if none is larger")
    parser.add_argument("--resume", action="store_true", help="go on with a run of the same sources that was stopped")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--jobs", type=int, help="run the first jobs only; default: as many as are recorded")
    given = parser.parse_args()
    size = "short" if given.short else "full"
    bench.clear(resume=given.resume)
    jobs = [job for job in jobs_of(short=given.short) if given.only in job.name]
    before = bench.recorded(size)
    jobs = jobs[: given.jobs or (not given.only and before.jobs) or len(jobs)]
    made = bench.run(jobs, given.processes, lambda text: _say(text, sys.stderr))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    kinds = bench.kinds_of(made)
    total = sum(kind.disagreements for kind in kinds)
    seconds = used.ru_utime + used.ru_stime
    _say("\n".join(bench.table(kinds)))
    _say(f"{total} disagreements in {len(made)} comparisons of {len(kinds)} kinds, {seconds:.0f} s of processor time")
    if given.only:
        return 0
    lines = [] if given.record else bench.grown(kinds, before.kinds)
    _say("\n".join(lines))
    if not lines and (given.record or given.accept_fall):
        bench.write_counts(size, kinds, len(jobs))
    elif not lines and any(kind.disagreements < before.kinds[kind.name]["disagreements"] for kind in kinds):
        _say("some counts fell: run with --accept-fall, so that they stay so low")
    return 1 if lines else 0


def _say(text: str, to: TextIO = sys.stdout) -> None:
    to.write(f"{text}\n")
    to.flush()


if __name__ == "__main__":
    sys.exit(main())
