"""The compiled loop and the planner hold a request against its SLO alike."""

import numpy as np
import pytest

from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests, Slo, SloClass
from simulated import conversation_lengths, pool


@pytest.mark.parametrize(
    "slo",
    [Slo(ttft_s=0.05), Slo(tpot_s=0.016), Slo(e2e_s=3.0), Slo(ttft_s=0.05, tpot_s=0.016), Slo(tpot_s=0.016, e2e_s=3.0)],
    ids=str,
)
def test_the_compiled_tally_counts_what_the_slo_says(slo: Slo) -> None:
    drawn = conversation_lengths(3000, 6.0)
    answers = np.where(np.arange(3000) % 3 == 0, 1, drawn.output_tokens).astype(np.int32)
    sent = Requests(
        arrival_s=drawn.arrival_s, input_tokens=drawn.input_tokens, output_tokens=answers, slo_class=drawn.slo_class
    )
    classes = [SloClass(name="all", share_fraction=1.0, slo=slo)]
    outcome = simulate([pool()], [sent], classes=classes, options=Options(keep_requests=True))
    served = outcome.served
    assert served is not None
    after = np.where(served.output_tokens > 1, served.output_tokens - 1.0, np.nan)
    kept = slo.met(ttft_s=served.ttft_s, tpot_s=(served.e2e_s - served.ttft_s) / after, e2e_s=served.e2e_s)
    assert outcome.classes[0].met == kept.sum()
    assert 0.05 < kept.mean() < 0.95
