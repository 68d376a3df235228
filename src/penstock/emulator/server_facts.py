"""Writes what a server says about itself, with the paths and field names of vLLM 0.33 and SGLang 0.5.23.

A load tool or a comparison of two servers reads these answers to learn how the servers are set up.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.emulator.completion_request import Prompt, read_prompt
from penstock.fleet.deployment import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Setup of an emulated server, as its fleet file states it."""

    version: str
    weights: str
    cache_dtype: str
    split: Parallelism
    max_sequences: int
    max_batched_tokens: int
    prefix_caching: bool
    drafted_tokens: int = 0
    revision: str | None = None
    checkpoint: str | None = None
    """Path or name of the weights. None: the name of the model."""
    tokenizer: int = 0
    """Number of the tokenizer. Tokenizers with different numbers give a text different token ids."""
    template_tokens: int = 0
    """Tokens that the chat template adds to each message, in addition to the usual ones."""
    answer_cap: int | None = None
    """Maximum tokens of an answer, whatever a request asks for. None: only the context limits it."""
    other_text: bool = False
    """Whether the server answers with other words, as other weights would."""
    more_fields: Mapping[str, object] = field(default_factory=dict)
    """Further fields of SGLang's /server_info."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLimits:
    """Name of the served model, its context limit and the size of its cache."""

    name: str
    max_tokens: int
    kv_blocks: int
    block_tokens: int


def describe(path: bytes, body: bytes, facts: ServerFacts, model: ServedLimits) -> bytes:
    """Return the body that a path answers: a fact about the server, the tokens of a prompt, or nothing."""
    if path == b"/version":
        return version_body(facts)
    if path.endswith(b"server_info"):
        return server_info_body(facts, model)
    if path.endswith(b"model_info"):
        return model_info_body(facts, model)
    return tokenize_body(body, facts, model.max_tokens) if path == b"/tokenize" else b""


def version_body(facts: ServerFacts) -> bytes:
    """Return the body of vLLM's /version."""
    return _body({"version": facts.version})


def server_info_body(facts: ServerFacts, model: ServedLimits) -> bytes:
    """Return the body of SGLang's /server_info, without fields that the emulator does not know."""
    split, drafts = facts.split, facts.drafted_tokens
    return _body(
        {
            "version": facts.version,
            "model_path": facts.checkpoint or model.name,
            "served_model_name": model.name,
            "tokenizer_path": model.name,
            "revision": facts.revision,
            "dtype": "auto",
            "quantization": None if facts.weights in {"bf16", "fp16"} else facts.weights,
            "kv_cache_dtype": facts.cache_dtype,
            "context_length": model.max_tokens,
            "max_total_num_tokens": model.kv_blocks * model.block_tokens,
            "page_size": model.block_tokens,
            "disable_radix_cache": not facts.prefix_caching,
            "max_running_requests": facts.max_sequences,
            "chunked_prefill_size": facts.max_batched_tokens,
            "tp_size": split.tp,
            "pp_size": split.pp,
            "dp_size": split.dp,
            "ep_size": split.tp * split.dp if split.expert_parallel else 1,
            "speculative_algorithm": "NEXTN" if drafts else None,
            "speculative_num_draft_tokens": drafts or None,
            **facts.more_fields,
        }
    )


def model_info_body(facts: ServerFacts, model: ServedLimits) -> bytes:
    """Return the body of SGLang's /model_info."""
    return _body(
        {
            "model_path": facts.checkpoint or model.name,
            "served_model_name": model.name,
            "tokenizer_path": model.name,
            "is_generation": True,
            "weight_version": facts.revision or "default",
        }
    )


def tokenize_body(request: bytes, facts: ServerFacts, max_tokens: int) -> bytes:
    """Return the body of /tokenize for a prompt or for chat messages. A token is four bytes of the text."""
    prompt = read_prompt(request, facts.template_tokens)
    ids = _token_ids(prompt, facts.tokenizer)
    return _body({"count": prompt.tokens, "max_model_len": max_tokens, "tokens": ids, "token_strs": None})


def _token_ids(prompt: Prompt, tokenizer: int) -> list[int]:
    """Return one id per token. Equal texts have equal ids. Ids after the text stand for the chat template."""
    whole = [int.from_bytes(prompt.text[at : at + 4], "little") ^ tokenizer for at in range(0, len(prompt.text), 4)]
    return (whole + [0] * prompt.tokens)[: prompt.tokens]


def _body(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode()
