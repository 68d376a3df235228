"""Reads the setup of a running server: from what it says about itself, and from its answers.

vLLM states its release, its models and its cache. SGLang states nearly everything. Its answer can also have keys, paths
and the environment, so only the fields that are listed here are read from it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from penstock.parity.http_client import EndpointError, first_model, get_json, get_text, post_json, server_base
from penstock.parity.probe_texts import CACHED_TEXT, MESSAGES, TEXTS
from penstock.parity.setup_facts import ServerSetup, data_type
from penstock.prometheus_text import read_samples

_ANSWER_TOKENS: Final = 48
_SHOWN_DIGITS: Final = 12
_SGLANG_INFO: Final = ("/server_info", "/get_server_info")
"""The second path is the older name."""
_SGLANG_FIELDS: Final[Mapping[str, str]] = {
    "version": "version",
    "revision": "revision",
    "kv_cache_dtype": "kv_dtype",
    "max_running_requests": "max_sequences",
    "chunked_prefill_size": "max_batched_tokens",
    "max_total_num_tokens": "kv_tokens",
    "page_size": "page_tokens",
    "schedule_policy": "schedule",
    "attention_backend": "attention",
    "speculative_num_draft_tokens": "draft_tokens",
}
"""Field of SGLang's /server_info, and the fact that it states."""
_VLLM_CACHE: Final[Mapping[str, str]] = {
    "cache_dtype": "kv_dtype",
    "kv_cache_size_tokens": "kv_tokens",
    "block_size": "page_tokens",
}
"""Label of vLLM's `cache_config_info`, and the fact that it states."""


def read_setup(target: str, url: str, served: str | None = None) -> ServerSetup:
    """Ask a server for its setup. Raise an error only if it lists no model."""
    base = server_base(url)
    model = served or first_model(base)
    asked = _Asked(base)
    values = _of_models(asked.get("/v1/models"), model)
    info = next((found for path in _SGLANG_INFO if isinstance(found := asked.get(path), dict)), None)
    if info is not None:
        values |= _of_sglang(info)
    else:
        version = asked.get("/version")
        if isinstance(version, dict) and version.get("version") is not None:
            values["version"] = str(version["version"])
        values |= _of_metrics(asked.ask("/metrics", lambda: get_text(base, "/metrics")) or "")
    if values.get("drafting") == "off":
        values["draft_tokens"] = "0"
    values |= _of_tokens(asked, model) | _of_answers(asked, model)
    return ServerSetup(target=target, values=values, kept_shut=tuple(dict.fromkeys(asked.kept_shut)))


class _Asked:
    """Server under test. A path that fails is remembered and answers None."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.kept_shut: list[str] = []

    def ask(self, path: str, question: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON of an external server
        try:
            return question()
        except EndpointError:
            self.kept_shut.append(path)
            return None

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON of an external server
        return self.ask(path, lambda: get_json(self.base, path))

    def post(self, path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON of an external server
        return self.ask(path, lambda: post_json(self.base, path, body))


def _of_models(listed: Any, model: str) -> dict[str, str]:  # noqa: ANN401 - JSON of an external server
    entries = listed.get("data") if isinstance(listed, dict) else None
    cards = [card for card in entries if isinstance(card, dict)] if isinstance(entries, list) else []
    card = next((one for one in cards if one.get("id") == model), {})
    values = {"model": _checkpoint(card.get("root") or model)}
    values["adapters"] = ", ".join(sorted(str(one.get("id")) for one in cards if one.get("parent"))) or "none"
    if card.get("max_model_len") is not None:
        values["context"] = str(card["max_model_len"])
    return values


def _checkpoint(path: object) -> str:
    """Return the last part of a checkpoint's path or name, in lower case."""
    return PurePosixPath(str(path)).name.lower()


def _of_sglang(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a fixed list of fields."""
    values = {fact: str(info[field]) for field, fact in _SGLANG_FIELDS.items() if info.get(field) is not None}
    values["engine"] = "sglang"
    if "kv_dtype" in values:
        values["kv_dtype"] = data_type(values["kv_dtype"])
    if info.get("model_path") is not None:
        values["model"] = _checkpoint(info["model_path"])
    if info.get("context_length") is not None:
        values["context"] = str(info["context_length"])
    stated = info.get("quantization") or info.get("dtype")
    if stated is not None:
        values["weights"] = data_type(str(stated))
    if "disable_radix_cache" in info:
        values["prefix_cache"] = "off" if info["disable_radix_cache"] else "on"
    if "speculative_algorithm" in info:
        values["drafting"] = "on" if info["speculative_algorithm"] else "off"
    sizes = [(short, info.get(f"{short}_size")) for short in ("tp", "pp", "dp", "ep")]
    values |= {"split": " ".join(f"{short}{size}" for short, size in sizes)} if sizes[0][1] is not None else {}
    if "enable_hierarchical_cache" in info:
        values["offload"] = "on" if info["enable_hierarchical_cache"] else "off"
    if "disable_cuda_graph" in info:
        compiled = ", compiled" if info.get("enable_torch_compile") else ""
        values["graphs"] = ("off" if info["disable_cuda_graph"] else "on") + compiled
    return values


def _of_metrics(page: str) -> dict[str, str]:
    """Return the facts of vLLM's metrics page. Counters of drafts exist only where drafting is on."""
    samples = list(read_samples(page))
    if not any(one.name.startswith("vllm:") for one in samples):
        return {}
    values = {"engine": "vllm"}
    values["drafting"] = "on" if any(one.name.startswith("vllm:spec_decode_") for one in samples) else "off"
    config = next((one.labels for one in samples if one.name == "vllm:cache_config_info"), {})
    values |= {fact: config[label] for label, fact in _VLLM_CACHE.items() if config.get(label, "None") != "None"}
    if "kv_dtype" in values:
        values["kv_dtype"] = data_type(values["kv_dtype"])
    if "enable_prefix_caching" in config:
        values["prefix_cache"] = "on" if config["enable_prefix_caching"] == "True" else "off"
    if "kv_offloading_backend" in config or "kv_offloading_size" in config:
        size = config.get("kv_offloading_size", "None")
        values["offload"] = "off" if size in {"None", "0", "0.0"} else "on"
    return values


def _of_tokens(asked: _Asked, model: str) -> dict[str, str]:
    """Return digests of the token ids of fixed texts and messages."""
    values = {}
    texts = [{"model": model, "prompt": text} for text in TEXTS]
    chats = [{"model": model, "messages": messages} for messages in MESSAGES]
    for fact, bodies in (("tokenizer", texts), ("template", chats)):
        ids = []
        for body in bodies:
            answer = asked.post("/tokenize", body)
            tokens = answer.get("tokens") if isinstance(answer, dict) else None
            if not isinstance(tokens, list):
                break
            ids.append(tokens)
        if len(ids) == len(bodies):
            values[fact] = _digest(ids)
    return values


def _of_answers(asked: _Asked, model: str) -> dict[str, str]:
    """Return what short answers show: their text, their length, the prompt's tokens and hits of the prefix cache."""
    greedy = {"model": model, "temperature": 0, "seed": 0, "ignore_eos": True}
    values: dict[str, str] = {}
    texts, counts = [], []
    for text in TEXTS:
        answer = asked.post("/v1/completions", {**greedy, "prompt": text, "max_tokens": 16})
        texts.append(_first_choice(answer, "text"))
    for messages in MESSAGES:
        answer = asked.post("/v1/chat/completions", {**greedy, "messages": messages, "max_tokens": 1})
        counts.append(_usage(answer, "prompt_tokens"))
    if None not in texts:
        values["answers"] = _digest(texts)
    if None not in counts:
        values["prompt_tokens"] = ", ".join(map(str, counts))
    long = {**greedy, "prompt": CACHED_TEXT, "max_tokens": _ANSWER_TOKENS}
    asked.post("/v1/completions", long)
    answer = asked.post("/v1/completions", long)
    length, hits = _usage(answer, "completion_tokens"), _usage(answer, "prompt_tokens_details", "cached_tokens")
    if length is not None:
        values["answer_length"] = str(length)
    if hits is not None:
        values["cached_repeat"] = "yes" if hits > 0 else "no"
    return values


def _first_choice(answer: Any, field: str) -> str | None:  # noqa: ANN401 - JSON of an external server
    try:
        return str(answer["choices"][0][field])
    except (KeyError, IndexError, TypeError):
        return None


def _usage(answer: Any, *keys: str) -> int | None:  # noqa: ANN401 - JSON of an external server
    try:
        found = answer["usage"]
        for key in keys:
            found = found[key]
        return int(found)
    except (KeyError, TypeError, ValueError):
        return None


def _digest(values: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:_SHOWN_DIGITS]
