"""Plans the launch of a checkpoint on an accelerator, with a reason for each flag."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Parallelism
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, ServingEngine
from penstock.preflight.facts.derive_facts import chip_of
from penstock.preflight.facts.situation import Launch, Subject, UnreadModel
from penstock.preflight.launch.atom_settings import atom_drafting, atom_server_settings, sglang_plugin_variables
from penstock.preflight.launch.images import official_image
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.recipe import Recipe
from penstock.preflight.launch.rocm_settings import fast_attention, rocm_settings, settings_without_shape
from penstock.preflight.launch.server_program import IMAGES_THAT_SERVE, program_of
from penstock.preflight.launch.setting import Setting, first_of_each
from penstock.preflight.launch.trtllm_settings import CONFIG_FILE, trtllm_settings

_LINE_BREAK: Final = " \\\n  "
_NEW_LINE: Final = re.compile(r"(?<!\\)\n")
"""End of a line that no backslash continues."""
_FILLED_IN: Final = re.compile(r"[\w$%+=:,./{}-]*\$[\w$%+=:,./{}-]*")
HEAD_NODE: Final = "HEAD_NODE"
"""Placeholder in multi-node commands for the address of the first node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """Devices and port of the first of several replicas on one machine."""

    devices: tuple[int, ...]
    """Numbers of the devices. The tuple is empty if the replica has the whole machine."""
    port: int
    """Port on which the replica is reached."""
    replicas: int
    """Replicas on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """A launch that can be printed as a command for an installed engine or as a container command."""

    engine: ServingEngine
    version: Release
    vendor: str
    model: str
    flags: tuple[Setting, ...]
    variables: tuple[Setting, ...]
    image: str | None
    """Official image. The image is None if no official image exists for this accelerator or release."""
    nodes: int = 1
    """Number of nodes. Each node runs the same command with a different rank."""
    unreleased: bool = False
    """Whether the version number belongs to no published release, so that no image exists."""
    config_file: str = ""
    """Text of the YAML file that the command reads; empty if the server needs no file."""
    place: ReplicaPlace | None = None
    """Devices and port of this replica. None if the replica has the machine for itself and its usual port."""

    def as_launch(self) -> Launch:
        """Return the launch in the form that rules and flag checks use."""
        return Launch(
            flags={flag.name: flag.value or "true" for flag in self.flags},
            environment={variable.name: variable.value or "" for variable in self.variables},
            image=self.image,
        )

    def with_flags(self, *added: Setting) -> "LaunchPlan":
        """Return the plan with the given flags added. Flags that the plan already sets keep their values."""
        return replace(self, flags=first_of_each((*self.flags, *added)))

    def has(self, *names: str) -> bool:
        """Return whether at least one of the named flags is set."""
        return any(flag.name in names for flag in self.flags)

    def with_published_image(self, releases: Sequence[str]) -> "LaunchPlan":
        """Return the plan with the image tag under which the release was published.

        If no release of this number is known, the plan has no image, because the image may not exist.
        """
        if self.image is None:
            return self
        tag = next((text for text in releases if Release(text) == self.version), None)
        image = None if tag is None else self.image.replace(f":v{self.version}", f":v{tag}")
        return replace(self, image=image, unreleased=tag is None)

    def bare(self) -> str:
        """Return the command for an installed engine, with one argument per line."""
        program = program_of(self.engine)
        assigned = [f"{variable.name}={quote(variable.value or '')}" for variable in self.variables]
        flags = self._flag_words()
        if self.place is not None:
            assigned = (
                [f"{self._visible_devices}={self._device_numbers}", *assigned] if self.place.devices else assigned
            )
            flags += [f"--port {self.place.port}"] if self.place.port != self._server_port else []
        return self._written_file() + _LINE_BREAK.join([*assigned, program.start(self.model), *flags])

    @property
    def _server_port(self) -> int:
        stated = next((flag.value for flag in self.flags if flag.name == "port"), None)
        return program_of(self.engine).port if stated is None else int(stated)

    @property
    def _visible_devices(self) -> str:
        return "HIP_VISIBLE_DEVICES" if self.vendor == "amd" else "CUDA_VISIBLE_DEVICES"

    @property
    def _device_numbers(self) -> str:
        return ",".join(str(number) for number in self.place.devices) if self.place is not None else ""

    def _written_file(self) -> str:
        """Return the command that writes the file that the server reads, or nothing."""
        lines = " ".join(quote(line) for line in self.config_file.splitlines())
        return f"printf '%s\\n' {lines} > {CONFIG_FILE}\n" if self.config_file else ""

    def docker(self) -> str | None:
        """Return the command for the official image, with one argument per line."""
        if self.image is None:
            return None
        own = bool(self._device_numbers)
        devices = [f"""--gpus '"device={self._device_numbers}"'""" if own else "--gpus all"]
        if self.vendor == "amd":
            devices = ["--device /dev/kfd --device /dev/dri --group-add video --cap-add SYS_PTRACE"]
            devices.append("--security-opt seccomp=unconfined")
            devices += [f"-e {self._visible_devices}={self._device_numbers}"] if own else []
        program, port = program_of(self.engine), self._server_port
        published = port if self.place is None else self.place.port
        reached = f"-p {published}:{port}" if self.nodes == 1 else "--network host"
        model, mount = self._model_path_and_mount()
        run = ["docker run --rm", *devices, f"--ipc host {reached}", mount]
        run += [f"-e {variable.name}={quote(variable.value or '')}" for variable in self.variables]
        if self.config_file:
            run.append(f'-v "$PWD/{CONFIG_FILE}:/{CONFIG_FILE}:ro" -w /')
        if self.engine in IMAGES_THAT_SERVE:
            run.append(f"{self.image} {quote(model)}")
        else:
            run += [
                f"{self.image} {program.start(model)}",
                *([program.listens] if program.listens and not self.has("host") else []),
            ]
        return self._written_file() + _LINE_BREAK.join([*run, *self._flag_words()])

    def _model_path_and_mount(self) -> tuple[str, str]:
        """Return the model path in the container, and the mount option.

        A local model directory is mounted. For other models, the hub cache is mounted.
        """
        if self.model.startswith(("/", "./", "../")):
            return "/model", f"-v {quote(self.model)}:/model:ro"
        return self.model, "-v ~/.cache/huggingface:/root/.cache/huggingface"

    def _flag_words(self) -> list[str]:
        spell = program_of(self.engine).spell
        return [
            f"--{spell(flag.name)}" + ("" if flag.value is None else f" {quote(flag.value)}") for flag in self.flags
        ]


def command_lines(words: Sequence[str]) -> str:
    """Format the user's command with one option per line. Shell variables are not expanded."""
    lines: list[str] = []
    for word in words:
        shown = word if _FILLED_IN.fullmatch(word) else quote(word)
        if lines and not word.startswith("-"):
            lines[-1] += f" {shown}"
        else:
            lines.append(shown)
    return _LINE_BREAK.join(lines)


def pack_command(command: str, columns: int) -> str:
    """Put as many arguments on each line of a printed command as fit. An argument is never broken."""
    room = columns - len(_LINE_BREAK.replace("\n", ""))
    return "\n".join(_pack(line.split(_LINE_BREAK), room) for line in _NEW_LINE.split(command))


def _pack(arguments: Sequence[str], columns: int) -> str:
    lines: list[str] = []
    for argument in arguments:
        if lines and len(lines[-1]) + 1 + len(argument) <= columns:
            lines[-1] += f" {argument}"
        else:
            lines.append(argument)
    return _LINE_BREAK.join(lines)


def plan_launch(
    subject: Subject | UnreadModel,
    accelerator: Accelerator,
    engine: ServingEngine,
    version: Release,
    asked: LaunchChoices,
    recipe: Recipe | None = None,
) -> LaunchPlan:
    """Choose the flags and variables of a launch.

    The user's choices take precedence over the settings that the model needs on this chip. Both take precedence over
    the model's recipe. A model whose shape is not read gets no settings for its kernels.
    """
    chip, config_file = chip_of(accelerator.compute_target) or "", ""
    if engine == "trtllm":
        (flags, config_file), variables = trtllm_settings(asked), list[Setting]()
    elif engine == "atom":
        flags, variables = atom_server_settings(asked)
    else:
        build = _vllm if ENGINES[engine].server == "vllm" else _sglang
        # ATOM chooses its own kernels, so that the settings for vLLM's and SGLang's kernels are left out.
        flags, variables = build(subject, chip if engine in {"vllm", "sglang"} else "", version, asked)
        variables += sglang_plugin_variables() if engine == "sglang-atom" else []
    flags += _drafting(engine, asked.drafted_tokens)
    if asked.quantization is not None:
        flags.append(Setting(name="quantization", value=asked.quantization, why="the requested weight format"))
    nodes = -(-asked.parallelism.devices // accelerator.node.largest)
    if recipe is not None:
        flags += [flag for flag in recipe.flags if not _needs_aiter_mla(flag, variables, version)]
        variables += list(recipe.variables)
    chosen = any(flag.name == "attention-backend" for flag in flags)
    if engine == "vllm" and not chosen and isinstance(subject, Subject):
        fast_flags, fast_variables = fast_attention(subject, chip, version, asked.context_tokens)
        flags, variables = flags + fast_flags, variables + fast_variables
    return LaunchPlan(
        engine=engine,
        version=version,
        vendor=accelerator.vendor,
        model=subject.name,
        flags=first_of_each((*flags, *_several_nodes(engine, version, nodes, asked.parallelism))),
        variables=first_of_each(variables),
        image=official_image(engine, version, accelerator.vendor, chip),
        nodes=nodes,
        config_file=config_file,
    )


def _needs_aiter_mla(flag: Setting, variables: Sequence[Setting], version: Release) -> bool:
    """Return whether a recipe's flag is an FP8 cache that TRITON_MLA refuses before 0.18.0, with AITER's MLA off."""
    off = any(one.name == "VLLM_ROCM_USE_AITER_MLA" and one.value == "0" for one in variables)
    narrow = flag.name == "kv-cache-dtype" and (flag.value or "").startswith("fp8")
    return off and narrow and version < Release("0.18.0")


def _split_flags(asked: LaunchChoices, names: Sequence[str]) -> list[Setting]:
    split, (tp, pp, dp) = asked.parallelism, names
    flags = []
    if split.tp > 1:
        flags.append(Setting(name=tp, value=str(split.tp), why=f"split every layer over {split.tp} devices"))
    if split.pp > 1:
        flags.append(Setting(name=pp, value=str(split.pp), why=f"put the layers in {split.pp} stages"))
    if split.dp > 1:
        flags.append(Setting(name=dp, value=str(split.dp), why=f"{split.dp} attention ranks share the experts"))
    return flags


def _several_nodes(engine: ServingEngine, version: Release, nodes: int, split: Parallelism) -> list[Setting]:
    """Return the settings that connect several nodes. Each node runs the same command with a different rank."""
    server = ENGINES[engine].server
    if nodes == 1 or server in {"atom", "trtllm"}:
        return []
    if server == "vllm" and version < Release("0.11.1"):
        why = f"{nodes} machines: start Ray on each first"
        return [Setting(name="distributed-executor-backend", value="ray", why=why)]
    others = "1 on the other" if nodes == 2 else f"1 to {nodes - 1} on the others"
    rank = Setting(name="node-rank", value="0", why=f"0 here, {others}")
    count = Setting(name="nnodes", value=str(nodes), why=f"{nodes} machines, the same line on each")
    if server == "sglang":
        where = Setting(name="dist-init-addr", value=f"{HEAD_NODE}:20000", why="the address of the first machine")
        return [count, rank, where]
    where = Setting(name="master-addr", value=HEAD_NODE, why="the address of the first machine")
    if split.dp == 1:
        return [count, replace(rank, why=f"{rank.why}, with --headless there"), where]
    here = max(1, split.dp // nodes)
    others = f"{here} on the second" if nodes == 2 else f"{here}, {2 * here} and so on on the others"
    return [
        Setting(name="data-parallel-size-local", value=str(here), why="ranks on one machine"),
        Setting(name="data-parallel-start-rank", value="0", why=f"0 here, {others}, with --headless there"),
        Setting(name="data-parallel-address", value=HEAD_NODE, why="the address of the first machine"),
    ]


def _drafting(engine: ServingEngine, drafted_tokens: int) -> list[Setting]:
    """Return the settings for drafting with the checkpoint's multi-token-prediction layers.

    The layers draft the tokens one after another.
    """
    server = ENGINES[engine].server
    if not drafted_tokens or server == "trtllm":
        return []
    if server == "atom":
        return atom_drafting(drafted_tokens)
    why = f"the checkpoint's own layers draft {drafted_tokens} tokens a step"
    if server == "vllm":
        value = f'{{"method": "mtp", "num_speculative_tokens": {drafted_tokens}}}'
        return [Setting(name="speculative-config", value=value, why=why)]
    return [
        Setting(name="speculative-algorithm", value="EAGLE", why=why),
        Setting(name="speculative-num-steps", value=str(drafted_tokens), why="drafted one after another"),
        Setting(name="speculative-eagle-topk", value="1", why="one candidate for each position"),
        Setting(
            name="speculative-num-draft-tokens", value=str(drafted_tokens + 1), why="verified with the model's own"
        ),
    ]


def _vllm(
    subject: Subject | UnreadModel, chip: str, version: Release, asked: LaunchChoices
) -> tuple[list[Setting], list[Setting]]:
    flags = _split_flags(asked, ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"))
    if asked.parallelism.expert_parallel:
        flags.append(Setting(name="enable-expert-parallel", value=None, why="each device holds whole experts"))
    if asked.context_tokens is not None:
        flags.append(Setting(name="max-model-len", value=str(asked.context_tokens), why="the requested context"))
    if asked.cache_dtype is not None:
        flags.append(Setting(name="kv-cache-dtype", value=asked.cache_dtype, why="the requested KV cache dtype"))
    if isinstance(subject, UnreadModel):
        special, variables = settings_without_shape(subject.architecture, chip)
        return flags + special, variables
    if subject.model.architecture == "DeepseekV4ForCausalLM":
        flags.append(Setting(name="tokenizer-mode", value="deepseek_v4", why="its chat format is code, not a template"))
    special, variables = (
        rocm_settings(subject, chip, version, asked.parallelism) if chip.startswith("gfx") else ([], [])
    )
    return flags + special, variables


def _sglang(
    subject: Subject | UnreadModel, chip: str, version: Release, asked: LaunchChoices
) -> tuple[list[Setting], list[Setting]]:
    del version  # the flags below exist in every release that was read
    split = asked.parallelism
    # SGLang counts every rank of a replica as tensor parallel; attention ranks are a subset of them.
    whole = replace(asked, parallelism=replace(split, tp=split.tp * split.dp))
    flags = _split_flags(whole, ("tp-size", "pp-size", "dp-size"))
    if split.dp > 1:
        flags.append(Setting(name="enable-dp-attention", value=None, why="attention ranks inside one replica"))
    if split.expert_parallel:
        ranks, experts = split.tp * split.dp, None if isinstance(subject, UnreadModel) else subject.model.experts
        flags.append(Setting(name="ep-size", value=str(ranks), why="each device holds whole experts"))
        if experts is not None and (copies := experts.copies_to_divide(ranks)):
            why = f"the same number of experts on each of {ranks} ranks"
            flags.append(Setting(name="ep-num-redundant-experts", value=str(copies), why=why))
    if asked.context_tokens is not None:
        flags.append(Setting(name="context-length", value=str(asked.context_tokens), why="the requested context"))
    if asked.cache_dtype is not None:
        spelled = "fp8_e4m3" if asked.cache_dtype == "fp8" else asked.cache_dtype
        flags.append(Setting(name="kv-cache-dtype", value=spelled, why="the requested KV cache dtype"))
    variables = []
    if chip in {"gfx942", "gfx950"}:
        variables.append(Setting(name="SGLANG_USE_AITER", value="1", why="AMD's kernels; the images set it too"))
    if chip in {"gfx942", "gfx950"} and isinstance(subject, Subject):
        heads = subject.model.query_heads // split.tp
        kinds = subject.model.attention_kinds
        # Sparse attention has a separate backend, which SGLang selects unless the launch names another backend.
        if "mla" in kinds and "sparse" not in kinds and heads in {16, 128}:
            why = f"{heads} heads per device: AITER's MLA has kernels for 16 and 128"
            flags.append(Setting(name="attention-backend", value="aiter", why=why))
    return flags, variables
