"""With which flags? The launch this checkpoint should get on this device, each flag with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Parallelism
from penstock.fleet.engine import EngineName
from penstock.fleet.release import Release
from penstock.preflight.facts.derive import attention_kinds, chip_of, expert_width
from penstock.preflight.facts.situation import Launch, Subject

_AITER_CHIPS: Final = ("gfx942", "gfx950")
_SPARSE_MLA: Final = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
_PORT: Final = {"vllm": 8000, "sglang": 30000}
_LINE_BREAK: Final = " \\\n  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A flag or a variable, its value (None for a switch) and why it is there."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """A launch, ready to be printed bare or as a container."""

    engine: EngineName
    version: Release
    vendor: str
    model: str
    flags: tuple[Setting, ...]
    variables: tuple[Setting, ...]
    image: str | None
    """None where no official image serves this device."""

    def as_launch(self) -> Launch:
        """Return what rules and flag checks look at."""
        return Launch(
            flags={flag.name: flag.value or "true" for flag in self.flags},
            environment={variable.name: variable.value or "" for variable in self.variables},
            image=self.image,
        )

    def bare(self) -> str:
        """Return the command for an installed engine, an argument a line."""
        program = f"vllm serve {quote(self.model)}"
        if self.engine == "sglang":
            program = f"python3 -m sglang.launch_server --model-path {quote(self.model)}"
        assigned = [f"{variable.name}={quote(variable.value or '')}" for variable in self.variables]
        return _LINE_BREAK.join([" ".join([*assigned, program]), *self._typed()])

    def docker(self) -> str | None:
        """Return the command for the official image, an argument a line."""
        if self.image is None:
            return None
        devices = ["--gpus all"]
        if self.vendor == "amd":
            devices = ["--device /dev/kfd --device /dev/dri --group-add video --cap-add SYS_PTRACE"]
            devices.append("--security-opt seccomp=unconfined")
        port = _PORT[self.engine]
        model, mount = self._mounted()
        run = ["docker run --rm", *devices, f"--ipc host -p {port}:{port}", mount]
        run += [f"-e {variable.name}={quote(variable.value or '')}" for variable in self.variables]
        if self.engine == "sglang":
            run += [f"{self.image} python3 -m sglang.launch_server --model-path {quote(model)}", "--host 0.0.0.0"]
        else:
            run.append(f"{self.image} {quote(model)}")
        return _LINE_BREAK.join([*run, *self._typed()])

    def _mounted(self) -> tuple[str, str]:
        """Show the container a local directory, or the cache hub models are downloaded to."""
        if self.model.startswith(("/", "./", "../")):
            return "/model", f"-v {quote(self.model)}:/model:ro"
        return self.model, "-v ~/.cache/huggingface:/root/.cache/huggingface"

    def _typed(self) -> list[str]:
        return [f"--{flag.name}" + ("" if flag.value is None else f" {quote(flag.value)}") for flag in self.flags]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user decided."""

    parallelism: Parallelism
    cache_dtype: str | None = None
    context_tokens: int | None = None


def plan_launch(
    subject: Subject, accelerator: Accelerator, engine: EngineName, version: Release, asked: Asked
) -> LaunchPlan:
    """Choose flags and variables: what was asked for, then what this model needs on this chip."""
    chip = chip_of(accelerator.compute_target) or ""
    build = _vllm if engine == "vllm" else _sglang
    flags, variables = build(subject, chip, version, asked)
    return LaunchPlan(
        engine=engine,
        version=version,
        vendor=accelerator.vendor,
        model=subject.name,
        flags=tuple(flags),
        variables=tuple(variables),
        image=official_image(engine, version, accelerator.vendor, chip),
    )


def official_image(engine: EngineName, version: Release, vendor: str, chip: str) -> str | None:
    """Name the image that serves this device; SGLang's ROCm images are per chip."""
    if engine == "vllm":
        names = {"nvidia": "vllm/vllm-openai", "amd": "vllm/vllm-openai-rocm"}
        return f"{names[vendor]}:v{version}" if vendor in names else None
    if vendor == "nvidia":
        return f"lmsysorg/sglang:v{version}"
    suffix = {"gfx942": "mi30x", "gfx950": "mi35x"}.get(chip)
    return f"lmsysorg/sglang:v{version}-rocm720-{suffix}" if suffix else None


def rocm_of_image(image: str | None, version: Release, table: Mapping[str, Any]) -> str | None:
    """Return the ROCm release inside an official image, where it was read."""
    if image is None:
        return None
    if image.startswith("vllm/vllm-openai-rocm:"):
        if version > Release(str(table["vllm"]["last_read"])):
            return None
        found = [(Release(since), rocm) for since, rocm in table["vllm"].items() if since != "last_read"]
        held = [rocm for since, rocm in sorted(found, key=lambda pair: pair[0]) if since <= version]
        return held[-1] if held else None
    word = next((word for word in image.split("-") if word.startswith("rocm") and word[4:].isdecimal()), None)
    return None if word is None else ".".join(word[4:])


def _split_flags(asked: Asked, names: Sequence[str]) -> list[Setting]:
    split, (tp, pp, dp) = asked.parallelism, names
    flags = []
    if split.tp > 1:
        flags.append(Setting(name=tp, value=str(split.tp), why=f"split every layer over {split.tp} devices"))
    if split.pp > 1:
        flags.append(Setting(name=pp, value=str(split.pp), why=f"put the layers in {split.pp} stages"))
    if split.dp > 1:
        flags.append(Setting(name=dp, value=str(split.dp), why=f"{split.dp} attention ranks share the experts"))
    return flags


def _vllm(subject: Subject, chip: str, version: Release, asked: Asked) -> tuple[list[Setting], list[Setting]]:
    flags = _split_flags(asked, ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"))
    if asked.parallelism.expert_parallel:
        flags.append(Setting(name="enable-expert-parallel", value=None, why="each device holds whole experts"))
    if asked.context_tokens is not None:
        flags.append(Setting(name="max-model-len", value=str(asked.context_tokens), why="the context asked for"))
    special, variables = _vllm_rocm(subject, chip, version, asked) if chip.startswith("gfx") else ([], [])
    if asked.cache_dtype is not None:
        why = "the KV cache dtype asked for"
        special = [flag for flag in special if flag.name != "kv-cache-dtype"]
        special.append(Setting(name="kv-cache-dtype", value=asked.cache_dtype, why=why))
    if subject.model.architecture == "DeepseekV4ForCausalLM":
        special.append(Setting(name="tokenizer-mode", value="deepseek_v4", why="its chat format is code, no template"))
    return flags + special, variables


def _vllm_rocm(subject: Subject, chip: str, version: Release, asked: Asked) -> tuple[list[Setting], list[Setting]]:
    flags: list[Setting] = []
    variables: list[Setting] = []
    architecture = subject.model.architecture
    if chip not in _AITER_CHIPS:
        return flags, variables
    variables.append(Setting(name="VLLM_ROCM_USE_AITER", value="1", why="AMD's kernels; off unless asked for"))
    if _width_without_tile(subject, asked.parallelism):
        why = "the experts' width per device is no multiple of 128, which AITER's experts need"
        variables.append(Setting(name="VLLM_ROCM_USE_AITER_MOE", value="0", why=why))
    if architecture == "GptOssForCausalLM":
        why = "attention sinks: ROCM_ATTN cannot, the unified backend can (verified recipe)"
        backend = "ROCM_AITER_UNIFIED_ATTN"
        if version >= Release("0.13.0"):
            flags.append(Setting(name="attention-backend", value=backend, why=why))
        else:
            variables.append(Setting(name="VLLM_ATTENTION_BACKEND", value=backend, why=why))
        flags.append(Setting(name="block-size", value="64", why="the block size that backend prefers"))
    if architecture in _SPARSE_MLA:
        flags.append(Setting(name="block-size", value="1", why="sparse MLA on ROCm (verified recipe)"))
        flags.append(Setting(name="kv-cache-dtype", value="bfloat16", why="the verified recipe; fp8 is the default"))
    if architecture == "DeepseekV4ForCausalLM" and chip == "gfx942" and version < Release("0.27"):
        why = "the only form verified on gfx942 in this release"
        flags.append(Setting(name="moe-backend", value="triton_unfused", why=why))
        flags.append(Setting(name="enforce-eager", value=None, why=why))
    return flags, variables


def _width_without_tile(subject: Subject, split: Parallelism) -> bool:
    width = expert_width(subject.model)
    narrow = any(name in subject.model.formats for name in ("mxfp4", "nvfp4", "int4"))
    if width is None or narrow:
        return False
    return bool((width if split.expert_parallel else width // split.tp) % 128)


def _sglang(subject: Subject, chip: str, version: Release, asked: Asked) -> tuple[list[Setting], list[Setting]]:
    del version  # the flags below exist in every release that was read
    flags = _split_flags(asked, ("tp-size", "pp-size", "dp-size"))
    split = asked.parallelism
    if split.dp > 1:
        flags.append(Setting(name="enable-dp-attention", value=None, why="attention ranks inside one replica"))
    if split.expert_parallel:
        flags.append(Setting(name="ep-size", value=str(split.tp * split.dp), why="each device holds whole experts"))
    if asked.context_tokens is not None:
        flags.append(Setting(name="context-length", value=str(asked.context_tokens), why="the context asked for"))
    if asked.cache_dtype is not None:
        spelled = "fp8_e4m3" if asked.cache_dtype == "fp8" else asked.cache_dtype
        flags.append(Setting(name="kv-cache-dtype", value=spelled, why="the KV cache dtype asked for"))
    variables = []
    if chip in _AITER_CHIPS:
        variables.append(Setting(name="SGLANG_USE_AITER", value="1", why="AMD's kernels; the images set it too"))
        heads = subject.model.query_heads // split.tp
        if "mla" in attention_kinds(subject.model) and heads in {16, 128}:
            why = f"{heads} heads per device: AITER's MLA has kernels for 16 and 128"
            flags.append(Setting(name="attention-backend", value="aiter", why=why))
    return flags, variables
