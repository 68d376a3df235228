"""Builds the questions of `penstock.preflight` from its options and the launch command."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from penstock.api.arguments.choices import cache_choice, counted_targets, split_choice, tokens_choice
from penstock.api.doctor import host_of
from penstock.api.options.argument_types import Targets
from penstock.api.options.preflight_options import PreflightOptions
from penstock.catalog import load_accelerators
from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import NEWEST
from penstock.fleet.serving_engines import ENGINES, ServingEngine, serving_engine
from penstock.model import CacheDtype
from penstock.preflight import (
    Launch,
    LaunchChoices,
    PreflightQuestion,
    Subject,
    parse_command,
)
from penstock.preflight.facts.stated_split import stated_split
from penstock.preflight.facts.subject import smallest_split
from penstock.preflight.launch.images import image_release
from penstock.preflight.launch.release_flags import expand_abbreviations
from penstock.preflight.rules.knowledge import Knowledge

_ENGINES_OWN: Final = frozenset({"rocm", "triton", "python", "install"})
"""Facts about the environment of an engine. The host's are not those of a container."""


class LaunchQuestions:
    """Builder of one preflight question per deployment from the options.

    Options that the user did not give are read from the launch command.
    """

    def __init__(self, options: PreflightOptions, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.engine, self.version = options.engine, options.engine_version
        self.tp, self.pp, self.dp, self.ep = options.tp, options.pp, options.dp, options.ep
        self.context_tokens = None if options.context is None else tokens_choice(options.context)
        self.cache_dtype = _cache_text(options.kv)
        host = options.host
        texts = [f"{name}={value}" for name, value in host.items()] if isinstance(host, Mapping) else list(host)
        hosts = [host_of(text) for text in texts if "=" not in text]
        self._read_host = {name: value for one in hosts for name, value in one.stated.items()}
        self._stated_host = dict(_pair(text) for text in texts if "=" in text)
        self.target = next((one.target for one in hosts), None)
        installed = next((one.packages for one in hosts), {})
        if self.version is None and options.command is None and self.engine in installed:
            self.version = installed[self.engine]
        self.launch: Launch | None = None
        if options.command is not None:
            named, launch = parse_command(options.command)
            self.engine = named or options.engine
            self._take(launch)

    def _take(self, launch: Launch) -> None:
        """Fill in the engine version and the split from a launch command."""
        engine = serving_engine(self.engine)
        tagged = image_release(launch.image)
        if tagged is not None and self.version and Release(self.version) != tagged:
            raise UsageError(
                f"--engine-version {self.version} and the image {launch.image} disagree; leave one of them out"
            )
        self.version = str(tagged) if tagged is not None else self.version
        version = Release(self.version) if self.version else NEWEST[engine]
        self.launch = expand_abbreviations(launch, self.knowledge.flags[ENGINES[engine].server], version)
        stated = stated_split(self.launch, engine)
        self.tp, self.pp = self.tp or stated.tp, max(self.pp, stated.pp)
        self.dp, self.ep = max(self.dp, stated.dp), self.ep or stated.spreads_experts

    @property
    def host(self) -> dict[str, str]:
        """Return the facts about the host. A container in the command has its own ROCm, Python and packages."""
        contained = self.launch is not None and self.launch.image is not None
        outside = contained and self._read_host.get("install") != "docker"
        read = {name: value for name, value in self._read_host.items() if not outside or name not in _ENGINES_OWN}
        return read | self._stated_host

    @property
    def model(self) -> str | None:
        """Return the model that the launch command names, or None."""
        return None if self.launch is None else self.launch.flag("model-path")

    @property
    def serving_engine(self) -> ServingEngine:
        """Return the engine that the user chose."""
        return serving_engine(self.engine)

    @property
    def release(self) -> Release:
        """Return the release that the user chose, or the newest one that was read."""
        return Release(self.version) if self.version else NEWEST[self.serving_engine]

    def questions(self, subject: Subject, on: Targets) -> Iterable[PreflightQuestion]:
        """Yield one question per accelerator."""
        for accelerator, split, present in self.splits(on):
            yield replace(self.question(subject, accelerator, split), present_devices=present)

    def splits(self, on: Targets) -> Iterable[tuple[Accelerator, Parallelism, int | None]]:
        """Yield each accelerator with the split that the options state for it, and how many devices are there."""
        for accelerator, present in counted_targets(on):
            tp, pp = self.tp, self.pp
            # If a shell variable gives the count, or the count does not parse, all devices are assumed.
            unread = tp is None and self.launch is not None and self.launch.flag("tensor-parallel-size") is not None
            devices = present if unread else self._used_devices(present, tp or 1)
            if devices is not None and tp is None and self._spans_nodes(accelerator, devices, pp):
                # No fast link joins the nodes, so tensor parallelism stays within a node. Nodes are pipeline stages.
                tp, pp = accelerator.node.devices, devices // accelerator.node.devices
            yield accelerator, split_choice(accelerator, devices, tp=tp, pp=pp, dp=self.dp, ep=self.ep), present

    def _used_devices(self, devices: int | None, tp: int) -> int | None:
        """Return the number of devices that the launch command uses, which may differ from what the host has."""
        ranks = tp * self.pp * self.dp
        return ranks if self.launch is not None and devices is not None else devices

    def _spans_nodes(self, accelerator: Accelerator, devices: int, pp: int) -> bool:
        """Return whether the devices fill several nodes that are not joined by a fast link.

        The result is false if the user gives a pipeline-parallel or data-parallel split.
        """
        linked = accelerator.link.domain_devices if accelerator.link else None
        together = max(accelerator.node.largest, linked or 0)
        return pp == self.dp == 1 and devices > together and devices % accelerator.node.devices == 0

    def question(self, subject: Subject, accelerator: Accelerator, split: Parallelism) -> PreflightQuestion:
        """Build the question for one accelerator and split."""
        return PreflightQuestion(
            subject=subject,
            accelerator=accelerator,
            engine=self.serving_engine,
            version=self.release,
            asked=self.launch_choices(split),
            launch=self.launch,
            host=self.host,
        )

    def launch_choices(self, split: Parallelism) -> LaunchChoices:
        """Return what the user chose of the launch, with a split."""
        return LaunchChoices(parallelism=split, cache_dtype=self.cache_dtype, context_tokens=self.context_tokens)

    def everywhere(self, subject: Subject) -> list[PreflightQuestion]:
        """Build one question for each combination of accelerator and engine.

        Each question is for the minimum number of devices on which the model fits.
        """
        questions = []
        for accelerator in load_accelerators():
            for engine in ("vllm", "sglang"):
                self.engine = engine
                split = smallest_split(subject, accelerator, self.context_tokens, engine)
                questions.append(self.question(subject, accelerator, split))
        return questions


def _cache_text(text: str) -> str | None:
    """Return the value of the engine's flag for a KV cache type, or None for `auto`."""
    spelled = text.strip().lower()
    chosen = cache_choice(spelled)
    # Engines write the types of 16 bits in full. Other types keep the name by which the user asks for them.
    return {None: None, CacheDtype.BF16: "bfloat16", CacheDtype.FP16: "float16"}.get(chosen, spelled)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError(f"--host: '{text}' is not NAME=VALUE; use `rocm=7.2.3`, for example")
    return name.strip(), value.strip()
