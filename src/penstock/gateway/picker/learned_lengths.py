"""Learns output lengths, bytes per token, and ratios of observed to predicted latency from the engines' reports."""

from collections import Counter
from typing import Final

import numpy as np

from penstock.gateway.picker.decayed_sum import DecayedMean
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records

_BYTES_PER_TOKEN: Final = 4.0
"""Bytes per token that are assumed before the first estimate."""
_MIN_TOKENS: Final = 5000.0
"""Minimum prompt tokens between two estimates of bytes per token.

With this many tokens, the error from requests that are in flight during a report averages out.
"""
_MIN_BYTES, _MAX_BYTES = 1.0, 20.0
_TOKENS, _FIRSTS = 2000.0, 10.0
"""Half-life of the mean inter-token latency, in tokens, and half-life of the mean TTFT, in first tokens.

Both half-lives are shorter than those of the policy's corrections, so that no correction oscillates. An endpoint's
means decay at least as fast as if the endpoint got an equal share of its model's requests. An endpoint with few
requests therefore does not keep old observations for long.
"""
_REQUESTS: Final = 50.0
"""Number of responses in a report at which the report's mean output length replaces the learned mean.

A report with fewer responses moves the learned mean in proportion.
"""


class LearnedLengths:
    """Means of lengths and latencies, learned from the differences between consecutive reports of each endpoint."""

    def __init__(self, fleet: RoutedFleet) -> None:
        count = len(fleet.addresses)
        self._fleet = fleet
        self._last: list[np.void | None] = [None] * count
        self._bytes_then = np.zeros(count)
        self.bytes_per_token = dict.fromkeys(fleet.models, _BYTES_PER_TOKEN)
        self.output_tokens = {
            model: float(np.mean([item.output_tokens for item in fleet.classes if item.model == model] or [256]))
            for model in fleet.models
        }
        self.itl_s = np.zeros(count)
        """Inter-token latency of each endpoint in seconds, as the engine reports it; 0 if not yet reported."""
        self.first_ratio = np.ones(count)
        """Mean observed TTFT divided by mean predicted TTFT, for each endpoint."""
        self._predicted_s = np.zeros(count)
        self._predicted = np.zeros(count)
        self._predictions = dict.fromkeys(fleet.models, 0.0)
        self._replicas = Counter(fleet.served)
        self._between = [DecayedMean(_TOKENS) for _ in range(count)]
        self._first = [DecayedMean(_FIRSTS) for _ in range(count)]
        self._first_predicted = [DecayedMean(_FIRSTS) for _ in range(count)]

    def add_prediction(self, endpoint: int, ttft_s: float) -> None:
        """Record the predicted TTFT of a request.

        The caller records a prediction at the time at which the first token is predicted to arrive.
        """
        self._predicted_s[endpoint] += ttft_s
        self._predicted[endpoint] += 1
        self._predictions[self._fleet.served[endpoint]] += 1

    def apply_report(self, endpoint: int, report: np.void, prompt_bytes: Records) -> None:
        """Learn from an endpoint's report.

        `prompt_bytes` holds the prompt bytes that all pickers sent to each endpoint.
        """
        last, self._last[endpoint] = self._last[endpoint], report
        if last is None or report["prompt_tokens"] < last["prompt_tokens"]:
            self._bytes_then[endpoint] = prompt_bytes[endpoint]
            return
        model = self._fleet.served[endpoint]
        self._learn_latency(endpoint, last, report)
        tokens = _mean(last, report, "output_sum", "output_count")
        if tokens is not None:
            tokens = min(tokens, float(self._fleet.endpoints["max_context_tokens"][endpoint]))  # cap bad reports
            share = min(1.0, (report["output_count"] - last["output_count"]) / _REQUESTS)
            self.output_tokens[model] += share * (tokens - self.output_tokens[model])
        self._compare_bytes(endpoint, model, last, report, float(prompt_bytes[endpoint]))

    def _learn_latency(self, endpoint: int, last: np.void, report: np.void) -> None:
        """Update an endpoint's TTFT ratio and inter-token latency.

        The ratio and the latency are averaged over many engine steps. Between two reports an engine runs only two or
        three steps, some with a prefill and some without. The policy multiplies corrections, so a correction that
        oscillates would have less effect than its constant mean.
        """
        model = self._fleet.served[endpoint]
        halves = self._predictions[model] / self._replicas[model] / _FIRSTS
        times, amount = _between(last, report, "ttft_sum_s", "ttft_count")
        if times > 0 and self._predicted[endpoint] > 0:
            predicted = self._predicted[endpoint]
            observed_s = self._first[endpoint].add(amount, times, halves)
            due_s = self._first_predicted[endpoint].add(self._predicted_s[endpoint], predicted, halves)
            self.first_ratio[endpoint] = observed_s / max(1e-6, due_s)
            self._predicted_s[endpoint] = self._predicted[endpoint] = 0.0
        times, amount = _between(last, report, "itl_sum_s", "itl_count")
        if times > 0:
            self.itl_s[endpoint] = self._between[endpoint].add(amount, times, halves)

    def _compare_bytes(self, endpoint: int, model: str, last: np.void, report: np.void, sent: float) -> None:
        tokens = float(report["prompt_tokens"] - last["prompt_tokens"])
        if tokens < _MIN_TOKENS:
            # There are too few tokens for an estimate, so count them with the next report.
            kept = report.copy()
            kept["prompt_tokens"] = last["prompt_tokens"]
            self._last[endpoint] = kept
            return
        ratio = (sent - self._bytes_then[endpoint]) / tokens
        self._bytes_then[endpoint] = sent
        if _MIN_BYTES <= ratio <= _MAX_BYTES:
            self.bytes_per_token[model] += 0.2 * (ratio - self.bytes_per_token[model])


def _mean(last: np.void, report: np.void, total: str, count: str) -> float | None:
    """Return the mean of the samples between two reports, or None if there was no sample."""
    times, amount = _between(last, report, total, count)
    return amount / times if times > 0 else None


def _between(last: np.void, report: np.void, total: str, count: str) -> tuple[float, float]:
    """Return the number and the sum of the samples between two reports. `total` and `count` are names of fields.

    Return (0, 0) if there was no sample, or if the number or the sum decreased.
    """
    times, amount = float(report[count] - last[count]), float(report[total] - last[total])
    return (times, amount) if times > 0 and amount >= 0 else (0.0, 0.0)
