"""Lists the facts about a server that decide whether its times can be compared with another server's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OF_THE_MODEL: Final = "as in the model"
"""Value of a data type that a server leaves to the checkpoint. Servers state it as `auto`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFact:
    """One fact of a server's setup."""

    name: str
    title: str
    refuses: bool
    """Whether a difference makes the servers incomparable. Other differences are marked, because they may be the
    purpose of the comparison."""
    effect: str
    """What a difference changes, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetup:
    """What one server says about itself, and what its answers show."""

    target: str
    values: Mapping[str, str]
    """Value of each fact by the fact's name. A fact that the server does not state is missing."""
    kept_shut: tuple[str, ...] = ()
    """Paths that the server does not answer."""


def _refusing(name: str, title: str, effect: str) -> SetupFact:
    return SetupFact(name=name, title=title, refuses=True, effect=effect)


def _marking(name: str, title: str, effect: str) -> SetupFact:
    return SetupFact(name=name, title=title, refuses=False, effect=effect)


FACTS: Final[tuple[SetupFact, ...]] = (
    _refusing("model", "model", "the servers compute different models"),
    _refusing("revision", "revision of the weights", "the servers may compute different weights"),
    _refusing("weights", "precision of the weights", "bytes and arithmetic per token differ"),
    _refusing("kv_dtype", "KV cache dtype", "bytes per cached token and the cache's capacity differ"),
    _refusing("context", "maximum tokens of a request", "long requests are refused or cut on one server"),
    _refusing("answer_length", "tokens of an answer that must have 48", "one server generates fewer tokens"),
    _refusing("prefix_cache", "prefix cache", "repeated prompts cost nothing on one server"),
    _refusing("cached_repeat", "whether a repeated prompt is cached", "repeated prompts cost nothing on one server"),
    _refusing("drafting", "speculative decoding", "one server generates several tokens per step"),
    _refusing("tokenizer", "token ids of texts", "the same text has different tokens"),
    _refusing("template", "token ids of chat messages", "the same messages have different tokens"),
    _refusing("prompt_tokens", "prompt tokens of chat messages", "the same messages have different lengths"),
    _refusing("logprobs", "log-probabilities", "the servers do not compute the same model"),
    _marking("answers", "greedy answers", "weights, precision or rounding differ"),
    _marking("adapters", "LoRA adapters", "adapters cost memory and time"),
    _marking("engine", "engine", "the comparison includes the engines"),
    _marking("version", "release of the engine", "the comparison includes the releases"),
    _marking("draft_tokens", "drafted tokens per step", "the servers accept different numbers of tokens per step"),
    _marking("max_sequences", "maximum running requests", "one server queues earlier"),
    _marking("max_batched_tokens", "tokens per prefill step", "TTFT and TPOT are traded differently"),
    _marking("split", "parallelism", "the comparison includes the splits"),
    _marking("kv_tokens", "tokens in the KV cache", "one server preempts or queues earlier"),
    _marking("page_tokens", "tokens per KV block", "prefix hits and fragmentation differ"),
    _marking("offload", "KV cache beyond device memory", "more prompts are found in a cache on one server"),
    _marking("schedule", "scheduling policy", "requests are admitted in another order"),
    _marking("attention", "attention backend", "the comparison includes the kernels"),
    _marking("graphs", "captured graphs and compilation", "the overhead of a step differs"),
)
FACT_BY_NAME: Final[Mapping[str, SetupFact]] = {fact.name: fact for fact in FACTS}
_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "auto": OF_THE_MODEL}


def data_type(text: str) -> str:
    """Return the common name of a data type. Both dialects of FP8 have the same size and are called fp8."""
    lower = text.lower().removeprefix("torch.")
    return "fp8" if lower.startswith("fp8") else _DTYPES.get(lower, lower)
