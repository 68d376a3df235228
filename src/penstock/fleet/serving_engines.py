"""Lists the engines that a plan can choose, what each engine is, and whose memory rules apply to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet.engines import NEWEST, Engine, EngineName, engine_defaults
from penstock.fleet.release import Release

ServingEngine = Literal["vllm", "sglang", "vllm-atom", "sglang-atom", "atom", "trtllm"]
Server = Literal["vllm", "sglang", "atom", "trtllm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """What an engine is, and which parts of it are those of another engine."""

    name: ServingEngine
    label: str
    what: str
    """One sentence that says what the engine is."""
    server: Server
    """Program that users start. Its flags and release numbers are the engine's."""
    memory_rules: EngineName
    """Engine whose memory accounting Penstock applies."""
    settings: Mapping[str, int | float] = field(default_factory=dict)
    """Defaults of the engine that differ from those of the engine whose memory accounting applies."""

    @property
    def tuning_flags(self) -> Mapping[str, str]:
        """Flags that set the share of device memory (`memory_fraction`) and the tokens per step (`max_batched_tokens`).

        TensorRT-LLM has no flag for the share: its own is a share of the memory that the weights leave free.
        """
        return _TUNING_FLAGS[self.server]

    @property
    def assumes_memory_rules(self) -> bool:
        """Whether the memory accounting is that of another engine, which is an assumption."""
        return self.name != self.memory_rules


_VLLM_FLAGS: Final = {"memory_fraction": "gpu-memory-utilization", "max_batched_tokens": "max-num-batched-tokens"}
_TUNING_FLAGS: Final[Mapping[Server, Mapping[str, str]]] = {
    "vllm": _VLLM_FLAGS,
    "atom": _VLLM_FLAGS,
    "sglang": {"memory_fraction": "mem-fraction-static", "max_batched_tokens": "chunked-prefill-size"},
    "trtllm": {"max_batched_tokens": "max_num_tokens"},
}
ENGINES: Final[Mapping[ServingEngine, EngineProfile]] = {
    profile.name: profile
    for profile in (
        EngineProfile(
            name="vllm",
            label="vLLM",
            what="The vLLM server with its own kernels and kernel libraries.",
            server="vllm",
            memory_rules="vllm",
        ),
        EngineProfile(
            name="sglang",
            label="SGLang",
            what="The SGLang server with its own kernels and kernel libraries.",
            server="sglang",
            memory_rules="sglang",
        ),
        EngineProfile(
            name="vllm-atom",
            label="vLLM with ATOM",
            what="vLLM's server with AMD's plug-in ATOM, which replaces vLLM's model code, attention and experts.",
            server="vllm",
            memory_rules="vllm",
        ),
        EngineProfile(
            name="sglang-atom",
            label="SGLang with ATOM",
            what="SGLang's server with AMD's model package ATOM, which replaces SGLang's model code and attention.",
            server="sglang",
            memory_rules="sglang",
        ),
        EngineProfile(
            name="atom",
            label="ATOM",
            what="AMD's own server for Instinct accelerators, built like vLLM on the kernels of AITER.",
            server="atom",
            memory_rules="vllm",
            # Defaults of atom/model_engine/arg_utils.py, the same in 0.1.2 to 0.1.5.
            settings={"memory_fraction": 0.9, "max_batched_tokens": 16384, "max_sequences": 512},
        ),
        EngineProfile(
            name="trtllm",
            label="TensorRT-LLM",
            what="NVIDIA's own server, started with `trtllm-serve`; its PyTorch backend is the default.",
            server="trtllm",
            memory_rules="vllm",
            # Defaults of tensorrt_llm/llmapi/llm_args.py: a share of the memory that is free after the weights.
            settings={"memory_fraction": 0.9, "max_batched_tokens": 8192, "max_sequences": 2048},
        ),
    )
}


def serving_engine(text: str) -> ServingEngine:
    """Parse the name of an engine, or raise an error that lists the names."""
    found = next((name for name in ENGINES if name == text.strip().lower()), None)
    if found is None:
        raise UsageError(f"'{text}' is not a supported engine; use one of {', '.join(ENGINES)}")
    return found


def serving_defaults(
    name: ServingEngine, accelerator: Accelerator, *, version: str | None = None, tp: int = 1, pp: int = 1
) -> Engine:
    """Return the settings of an engine that is started without flags on this accelerator.

    For an engine whose memory accounting was not read, the accounting of another engine is assumed. The result names
    both engines.
    """
    profile = ENGINES[name]
    if not profile.assumes_memory_rules:
        return engine_defaults(profile.memory_rules, accelerator, version=version, tp=tp, pp=pp)
    shown = Release(version) if version else NEWEST[name]
    same_release = shown.text if profile.server == profile.memory_rules else None
    assumed = engine_defaults(profile.memory_rules, accelerator, version=same_release, tp=tp, pp=pp)
    return replace(assumed, stands_for=f"{name} {shown}", **profile.settings)  # type: ignore[arg-type] # fields of Engine


def measured_defaults(name: str, accelerator: Accelerator, *, tp: int = 1, pp: int = 1) -> Engine:
    """Return the settings of an engine that was measured, started without flags; vLLM's for an engine unknown here."""
    return serving_defaults(serving_engine(name) if name in ENGINES else "vllm", accelerator, tp=tp, pp=pp)


def profile_of(engine: Engine) -> EngineProfile:
    """Return the profile of the engine whose settings these are."""
    return ENGINES[serving_engine((engine.stands_for or engine.name).partition(" ")[0])]


def usual_settings(engine: Engine, accelerator: Accelerator, *, tp: int, pp: int) -> Engine:
    """Return the settings with which the same engine and release starts without flags."""
    version = engine.version if engine.stands_for is None else engine.stands_for.partition(" ")[2]
    return serving_defaults(profile_of(engine).name, accelerator, version=version, tp=tp, pp=pp)
