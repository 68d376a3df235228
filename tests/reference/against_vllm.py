"""Is the reference what vLLM does? Drives vLLM's own scheduler, without a model, through the same scenarios.

Needs an environment with vLLM 0.32 and nothing of Penstock: `PYTHONPATH=tests python -m reference.against_vllm 0 300`,
and with `ahead` after it for the scheduler that is one step ahead of the tokens.
Steps, chunks, contexts, used blocks, the clock, hits and preemptions must be equal, not close. Exit code 1 if not.
"""

import json
import os
import sys
import tempfile
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference.asynchronous import simulate_ahead
from reference.engine import ReferenceResult, ReferenceSettings, Step, simulate, step_seconds
from reference.scenarios import Scenario, random_scenario

if TYPE_CHECKING:
    from reference.kv_blocks import Token

LONGEST_TOKENS = 1 << 20
_IN_FLIGHT = 2
# The scheduler reads no weights; any small decoder will do.
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 8192,
    "max_position_embeddings": LONGEST_TOKENS,
    "torch_dtype": "bfloat16",
}


class VllmEngine:
    """vLLM's scheduler and block pool behind the few calls a step needs."""

    def __init__(self, settings: ReferenceSettings, model: str, *, ahead: bool = False) -> None:
        config, cache = import_module("vllm.config"), import_module("vllm.v1.kv_cache_interface")
        hashing = import_module("vllm.utils.hashing")
        cache_config = config.CacheConfig(
            block_size=settings.block_tokens, enable_prefix_caching=settings.prefix_caching
        )
        vllm_config = config.VllmConfig(
            model_config=config.ModelConfig(model=model, skip_tokenizer_init=True, dtype="bfloat16"),
            cache_config=cache_config,
            scheduler_config=config.SchedulerConfig(
                max_num_seqs=settings.max_num_seqs,
                max_num_batched_tokens=settings.max_num_batched_tokens,
                max_model_len=LONGEST_TOKENS,
                is_encoder_decoder=False,
                async_scheduling=ahead,
            ),
        )
        layer = cache.FullAttentionSpec(
            block_size=settings.block_tokens, num_kv_heads=1, head_size=1, dtype=import_module("torch").float32
        )
        # One block more than the reference has: vLLM never hands out its null block.
        cache_config.num_gpu_blocks = settings.num_blocks + 1
        import_module("vllm.v1.core.single_type_kv_cache_manager").register_all_kvcache_specs(vllm_config)
        module, name = ("async_scheduler", "AsyncScheduler") if ahead else ("scheduler", "Scheduler")
        self.scheduler = getattr(import_module(f"vllm.v1.core.sched.{module}"), name)(
            vllm_config=vllm_config,
            kv_cache_config=cache.KVCacheConfig(
                num_blocks=settings.num_blocks + 1,
                kv_cache_tensors=[],
                kv_cache_groups=[cache.KVCacheGroupSpec(["layer"], layer)],
            ),
            block_size=settings.block_tokens,
            log_stats=True,
            structured_output_manager=import_module("vllm.v1.structured_output").StructuredOutputManager(vllm_config),
        )
        utilities = import_module("vllm.v1.core.kv_cache_utils")
        utilities.init_none_hash(hashing.sha256)
        self._hasher = utilities.get_request_block_hasher(settings.block_tokens, hashing.sha256)
        self._settings = settings

    def add(self, number: int, prompt: list[int], output_tokens: int) -> Any:  # noqa: ANN401  # vLLM's Request
        sampling = import_module("vllm.sampling_params").SamplingParams(max_tokens=output_tokens, ignore_eos=True)
        request = import_module("vllm.v1.request").Request(
            request_id=str(number),
            prompt_token_ids=prompt,
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        return request

    @property
    def used_blocks(self) -> int:
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return self._settings.num_blocks - free

    def finish(self, scheduled: Any, sampled: dict[str, list[int]]) -> None:  # noqa: ANN401  # vLLM's SchedulerOutput
        output = import_module("vllm.v1.outputs").ModelRunnerOutput(
            req_ids=list(sampled),
            req_id_to_index={name: row for row, name in enumerate(sampled)},
            sampled_token_ids=list(sampled.values()),
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        self.scheduler.update_from_output(scheduled, output)


class VllmRun:
    """One scenario on vLLM's scheduler; the clock and the arrivals are ours."""

    def __init__(self, scenario: Scenario, model: str, *, ahead: bool = False) -> None:
        self.scenario = scenario
        self.engine = VllmEngine(scenario.settings, model, ahead=ahead)
        self.steps: list[Step] = []
        self.hits: dict[int, int] = {}
        self.preemptions: dict[int, int] = {}
        self._live: dict[int, Any] = {}
        # How often a request had been preempted when its last token came: if more often now, it prefills again.
        self._sampled_after: dict[int, int] = {}
        self._numbers: dict[Token, int] = {}
        self._texts = [self._text(number) for number in range(len(scenario.requests))]

    def run(self) -> None:
        """As the reference does it: who has arrived, one step, who has left."""
        scenario = self.scenario
        to_come = deque(range(len(scenario.requests)))
        now_s = 0.0
        while to_come or self._live:
            if scenario.users is None and not self._live:
                now_s = max(now_s, scenario.requests[to_come[0]].arrival_s)
            while to_come and self._arrives(to_come[0], now_s):
                number = to_come.popleft()
                request = scenario.requests[number]
                prompt = self._texts[number][: request.input_tokens]
                self._live[number] = self.engine.add(number, prompt, request.output_tokens)
            now_s = self._step(now_s)

    def run_ahead(self) -> None:
        """With two batches in flight, as `EngineCore.step_with_batch_queue` keeps them: schedule, then wait for one."""
        scenario = self.scenario
        to_come = deque(range(len(scenario.requests)))
        flying: deque[tuple[Any, dict[str, list[int]], float]] = deque()
        known_s = free_s = 0.0
        while to_come or self._live or flying:
            if scenario.users is None and not self._live:
                known_s = max(known_s, scenario.requests[to_come[0]].arrival_s)
            while to_come and self._arrives(to_come[0], known_s):
                number = to_come.popleft()
                prompt = self._texts[number][: scenario.requests[number].input_tokens]
                self._live[number] = self.engine.add(number, prompt, scenario.requests[number].output_tokens)
            scheduled = self.engine.scheduler.schedule()
            if scheduled.num_scheduled_tokens:
                start_s = max(free_s, known_s)
                sampled, free_s = self._planned(scheduled, start_s)
                flying.append((scheduled, sampled, free_s))
            if flying and (len(flying) == _IN_FLIGHT or not scheduled.num_scheduled_tokens):
                scheduled, sampled, known_s = flying.popleft()
                self._known(scheduled, sampled)

    def _planned(self, scheduled: Any, start_s: float) -> tuple[dict[str, list[int]], float]:  # noqa: ANN401  # vLLM's
        """Note the step, and say which requests get a token at its end."""
        contexts, chunks, sampled = [], [], {}
        for name, tokens in scheduled.num_scheduled_tokens.items():
            number = int(name)
            request = self._live[number]
            start = request.num_computed_tokens - tokens
            self.hits.setdefault(number, start)
            if self._sampled_after.get(number) == request.num_preemptions:
                contexts.append(start)
            else:
                chunks.append((start, start + tokens))
            samples = request.num_output_placeholders > 0 and not request.is_prefill_chunk
            if samples:
                self._sampled_after[number] = request.num_preemptions
            sampled[name] = [-1] if samples else []
        end_s = start_s + step_seconds(self.scenario.cost, contexts, chunks)
        step = Step(
            start_s=start_s,
            end_s=end_s,
            contexts=tuple(contexts),
            chunks=tuple(chunks),
            used_blocks=self.engine.used_blocks,
        )
        self.steps.append(step)
        return sampled, end_s

    def _known(self, scheduled: Any, sampled: dict[str, list[int]]) -> None:  # noqa: ANN401  # vLLM's SchedulerOutput
        """The tokens of a batch are known."""
        texts = {
            name: [self._texts[int(name)][self._live[int(name)].num_tokens]] if token else []
            for name, token in sampled.items()
        }
        self.engine.finish(scheduled, texts)
        for name in sampled:
            request = self._live[int(name)]
            if request.is_finished():
                self.preemptions[int(name)] = request.num_preemptions
                del self._live[int(name)]

    def _arrives(self, number: int, now_s: float) -> bool:
        if self.scenario.users is not None:
            return len(self._live) < self.scenario.users
        return self.scenario.requests[number].arrival_s <= now_s

    def _step(self, now_s: float) -> float:
        scheduled = self.engine.scheduler.schedule()
        contexts, chunks, sampled = [], [], {}
        for name, tokens in scheduled.num_scheduled_tokens.items():
            number = int(name)
            request = self._live[number]
            start = request.num_computed_tokens - tokens
            self.hits.setdefault(number, start)
            if self._sampled_after.get(number) == request.num_preemptions:
                contexts.append(start)
            else:
                chunks.append((start, start + tokens))
            caught_up = request.num_computed_tokens == request.num_tokens
            sampled[name] = [self._texts[number][request.num_tokens]] if caught_up else []
        end_s = now_s + step_seconds(self.scenario.cost, contexts, chunks)
        used = self.engine.used_blocks
        self.steps.append(
            Step(start_s=now_s, end_s=end_s, contexts=tuple(contexts), chunks=tuple(chunks), used_blocks=used)
        )
        self.engine.finish(scheduled, sampled)
        for name, token in sampled.items():
            if token:
                self._sampled(int(name))
        return end_s

    def _sampled(self, number: int) -> None:
        request = self._live[number]
        self._sampled_after[number] = request.num_preemptions
        if request.is_finished():
            self.preemptions[number] = request.num_preemptions
            del self._live[number]

    def _text(self, number: int) -> list[int]:
        """Token ids of a prompt and its answer: equal where the reference's contents are equal."""
        request = self.scenario.requests[number]
        contents: list[Token] = [(segment, offset) for segment, tokens in request.path for offset in range(tokens)]
        rest = request.input_tokens + request.output_tokens - len(contents)
        source: object = request.own if request.own >= 0 else ("request", number)
        contents += [(source, offset) for offset in range(rest)]
        return [self._numbers.setdefault(content, len(self._numbers) + 10) for content in contents]


def difference(reference: ReferenceResult, vllm: VllmRun) -> str | None:
    """The first thing that is not the same, or None."""
    for number, (ours, theirs) in enumerate(zip(reference.steps, vllm.steps, strict=False)):
        if ours != theirs:
            return f"step {number}: reference {ours}, vLLM {theirs}"
    if len(reference.steps) != len(vllm.steps):
        return f"{len(reference.steps)} steps, vLLM {len(vllm.steps)}"
    for number, outcome in enumerate(reference.outcomes):
        ours_of = (outcome.prefix_hit_tokens, outcome.preemptions)
        if ours_of != (vllm.hits[number], vllm.preemptions[number]):
            return (
                f"request {number}: hits and preemptions {ours_of}, vLLM {vllm.hits[number], vllm.preemptions[number]}"
            )
    return None


def main(first: int, last: int, *, ahead: bool = False) -> int:
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    differ = steps = preemptions = hit_tokens = 0
    with tempfile.TemporaryDirectory() as model:
        Path(model, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        for seed in range(first, last):
            scenario = random_scenario(seed)
            execute = simulate_ahead if ahead else simulate
            reference = execute(scenario.requests, scenario.settings, scenario.cost, users=scenario.users)
            vllm = VllmRun(scenario, model, ahead=ahead)
            (vllm.run_ahead if ahead else vllm.run)()
            found = difference(reference, vllm)
            if found:
                sys.stdout.write(f"seed {seed} ({scenario.kind}): {found}\n")
            differ += found is not None
            steps += len(reference.steps)
            preemptions += reference.preemptions
            hit_tokens += reference.hit_tokens
    sys.stdout.write(f"{last - first} scenarios, {differ} differ; ")
    sys.stdout.write(f"{steps:,} steps, {preemptions:,} preemptions, {hit_tokens:,} hit tokens\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), ahead="ahead" in sys.argv[3:]))
