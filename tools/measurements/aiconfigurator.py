"""What does aiconfigurator's silicon_sample.csv leave unsaid? The true split of a run, and whether it drafted."""

import re
from collections.abc import Iterable
from typing import Final

from measurements.filters import Raw
from measurements.split import Split

FILE_DAY: Final = "2026-08-21"
"""The day of the file, on rows that state none of their own; their releases are up to a year older."""
_NODE: Final = 8
_DRAFTED_DAYS: Final = {
    ("trtllm", "deepseek", "2026-01-14"),
    ("trtllm", "deepseek", "2026-02-05"),
    ("trtllm", "deepseek", "2026-02-06"),
    ("sglang", "qwen3.5-", "2026-03-20"),
    ("sglang", "deepseek", "2026-03-25"),
}
"""Days on which InferenceX ran this engine and model with draft layers: all its dated runs of TensorRT-LLM on these
days draft, and the times of Qwen3.5 are those of the drafting cells. On the last day SGLang ran both ways."""


class Sample:
    """The file, and what other rows of it say about a row."""

    def __init__(self, rows: Iterable[Raw], attention_dp: set[str]) -> None:
        self._attention_dp = attention_dp
        self._known_plain = {
            (raw["accelerator"], raw["weights_precision"], raw["date"], raw["tpot_ms"])
            for raw in rows
            if raw["source_id"] == "inferencex-via-aiconfigurator" and self._configuration(raw)
        }

    def ref_of(self, raw: Raw) -> str:
        """Return the id of a row in the file."""
        return raw["notes"].rsplit("id=", 1)[-1]

    def _configuration(self, raw: Raw) -> str:
        """Return the number of InferenceX's configuration, where the id gives it; none of those drafts."""
        found = re.search(r"_cfg(\d+)$", self.ref_of(raw))
        return found[1] if found else ""

    def split_of(self, raw: Raw) -> Split | None:
        """Undo the double counting: of n ranks with n expert ranks the file makes n x n devices."""
        noted = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", raw["parallel_note"])}
        tp, attention, cut, spread = int(raw["tp"]), noted["attention_dp"], noted["moe_tp"], noted["moe_ep"]
        if raw["source_id"] == "aiconfigurator-silicon":
            whole = max(1, cut) * max(1, spread)
            return Split(ranks=tp, expert_ranks=spread) if whole in {1, tp} else None
        if raw["engine"] == "vllm" and attention > 1:
            return Split(ranks=tp, expert_ranks=tp, attention_dp=self._configuration(raw) in self._attention_dp)
        ranks = max(cut, spread)
        return Split(ranks=ranks, expert_ranks=spread, attention_dp=attention > 1) if ranks <= _NODE else None

    def drafts(self, raw: Raw) -> bool:
        """Whether an InferenceX run used draft layers; a copy of one whose configuration is known does not."""
        day = (raw["engine"], raw["model"][:8], raw["date"])
        if raw["source_id"] != "inferencex-via-aiconfigurator" or day not in _DRAFTED_DAYS:
            return False
        if day[0] == "trtllm" or day[1] == "qwen3.5-":
            return True
        sharded = self.split_of(raw)
        if raw["weights_precision"] != "fp8" or raw["accelerator"] != "b200_sxm" or sharded != Split(ranks=_NODE):
            return False
        return (raw["accelerator"], raw["weights_precision"], raw["date"], raw["tpot_ms"]) not in self._known_plain
