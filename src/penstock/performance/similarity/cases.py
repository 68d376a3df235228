"""Describes measured and requested runs by their labels, load, date and work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final, Self, get_args

import numpy as np
import numpy.typing as npt

from penstock.catalog.measurement import Scenario
from penstock.fleet.deployment import Deployment
from penstock.model import ModelSpec
from penstock.model.weight import BF16, FORMATS
from penstock.performance.step.step_work import Array

Codes = npt.NDArray[np.uint64]
LogLoad = tuple[Array, Array, Array]
"""Base-2 logarithms of users, input tokens and output tokens."""
WORDS: Final = ("vendor", "part", "engine", "mixers", "ffn", "family", "weights", "split", "draft")
"""Attributes of a run, in this order: vendor of the accelerator, accelerator, engine, sequence mixers of the layers,
kind of feed-forward layers, exact shape of the model, weight format, split, and draft method with the drafted tokens.
The last attribute is empty if nothing is drafted."""
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    **{word: (word,) for word in ("vendor", "part", "engine", "mixers", "family")},
    "stack": ("part", "engine"),
    "ffn vendor": ("ffn", "vendor"),
    "ffn engine": ("ffn", "engine"),
    "ffn stack": ("ffn", "part", "engine"),
    "mixers vendor": ("mixers", "vendor"),
    "mixers engine": ("mixers", "engine"),
    "mixers stack": ("mixers", "part", "engine"),
    "family vendor": ("family", "vendor"),
    "family part": ("family", "part"),
    "family engine": ("family", "engine"),
    "family stack": ("family", "part", "engine"),
    "weights vendor": ("weights", "vendor"),
    "weights stack": ("weights", "part", "engine"),
    "split engine": ("split", "engine"),
    "setup": ("family", "part", "engine", "weights", "split", "draft"),
}
"""Labels that two runs can share. A label is one attribute or a combination of attributes."""
DRAFT_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "draft": ("draft",),
    "family draft": ("family", "draft"),
    "setup without drafts": ("family", "part", "engine", "weights", "split"),
}
"""Labels that only runs with drafts need."""
_ATTRIBUTES: Final = {**LABELS, **DRAFT_LABELS}
SINGLE_RUN_NOISE: Final[Mapping[str, float]] = {"sglang-cookbook": 2.0, "vllm-recipes": 2.0}
"""Standard deviation of a log time that a source adds, for sources that publish single runs next to a launch command.
Such a run is the answer for its own setup and load, and says next to nothing about others. When the setups of these 27
rows were held out, their errors had a root mean square of 0.55. With 0.5 here instead of 2.0, they still raised the
errors of other models on MI300X by a tenth."""
_DAYS_A_MONTH: Final = 30.4


@dataclass(frozen=True, kw_only=True, eq=False)
class Cases:
    """Runs as columns. Each column has one entry per run."""

    roofline: Array
    """Work of the average step, one column per component."""
    words: Mapping[str, Codes]
    users: Array
    input_tokens: Array
    output_tokens: Array
    day: Array
    """Date of each run, as a proleptic Gregorian ordinal."""
    undated: npt.NDArray[np.bool_]
    """Whether the run is a median over months. The software of such a run can be older than `day`, but not newer."""
    source_noise: Array
    """Standard deviation of the log time that the source of the run adds. See `SINGLE_RUN_NOISE`."""

    def __len__(self) -> int:
        return len(self.users)

    @cached_property
    def labels(self) -> Mapping[str, Codes]:
        """Return one code per label and run. Two runs have the same code if all attributes of the label are equal."""
        return {name: combine_codes(self.words, name) for name in _ATTRIBUTES}

    @cached_property
    def log_load(self) -> LogLoad:
        """Return the base-2 logarithms of users, input tokens and output tokens."""
        return np.log2(self.users), np.log2(self.input_tokens), np.log2(self.output_tokens)

    @property
    def months(self) -> Array:
        """Return the date of each run in months."""
        return self.day / _DAYS_A_MONTH

    def take(self, kept: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Cases":
        """Return the selected runs."""
        return Cases(
            roofline=self.roofline[kept],
            words={word: codes[kept] for word, codes in self.words.items()},
            users=self.users[kept],
            input_tokens=self.input_tokens[kept],
            output_tokens=self.output_tokens[kept],
            day=self.day[kept],
            undated=self.undated[kept],
            source_noise=self.source_noise[kept],
        )


@dataclass(frozen=True, slots=True)
class DrivenEngine:
    """Engine, and the scenario in which the engine was measured. Runs in different scenarios are not comparable."""

    name: str
    scenario: Scenario

    @classmethod
    def parse(cls, word: str) -> Self:
        """Parse the label that `word` returns."""
        name, _, last = word.rpartition(" ")
        scenario: Scenario | None = next((known for known in get_args(Scenario) if known == last), None)
        return cls(word, "online") if scenario is None else cls(name, scenario)

    @property
    def word(self) -> str:
        """Return the label that similar runs share: the engine, and the scenario unless it is online serving."""
        return self.name if self.serving else f"{self.name} {self.scenario}"

    @property
    def serving(self) -> bool:
        """Return whether the scenario is online serving."""
        return self.scenario == "online"


def labels_of_run(deployment: Deployment, engine: str, draft: str = "") -> dict[str, str]:
    """Return the attributes of a run.

    `engine` names the engine whose measurements apply. If the scenario is not online serving, its name follows the
    engine. `draft` is the draft method followed by the number of drafted tokens, or empty.
    """
    accelerator, split = deployment.accelerator, deployment.parallelism
    return {
        "vendor": str(accelerator.vendor),
        "part": accelerator.id,
        "engine": engine,
        "mixers": mixers_of(deployment.model),
        "ffn": "dense" if deployment.model.experts is None else "mixture",
        "family": shape_of(deployment.model),
        "weights": weights_label(deployment.model),
        "split": f"tp{split.tp} pp{split.pp} dp{split.dp} ep{split.expert_parallel:d}",
        "draft": draft,
    }


def family_of(model: ModelSpec) -> str:
    """Return the shape name of a model. Fine-tunes and point releases of one model have the same shape name."""
    return f"{model.architecture} {model.hidden_size}x{len(model.layers)}"


def shape_of(model: ModelSpec) -> str:
    """Return the shape name of a model, followed by the number of experts.

    Two models with the same layers but different numbers of experts count as different models.
    """
    experts = model.experts
    return family_of(model) + ("" if experts is None else f" {experts.routed}/{experts.per_token}")


def weights_label(model: ModelSpec) -> str:
    """Return the name, as in measurements, of the format that holds most of the weight bytes."""
    largest = next(iter(model.formats))
    return largest if largest in FORMATS else BF16.name


def mixers_of(model: ModelSpec) -> str:
    """Return the names of the sequence mixers in a model's layers."""
    return "+".join(sorted({layer.mixer.kind for layer in model.layers if layer.mixer is not None}))


def noise_of_sources(sources: Sequence[str]) -> Array:
    """Return the noise that each source adds to its rows."""
    return np.array([SINGLE_RUN_NOISE.get(source, 0.0) for source in sources])


def hash_strings(words: Sequence[str]) -> Codes:
    """Hash strings to codes. Equal strings have equal codes in all tables."""
    digests = (blake2b(word.encode(), digest_size=8).digest() for word in words)
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)


def combine_codes(words: Mapping[str, Codes], label: str) -> Codes:
    """Combine the codes of a label's attributes into one code. Their order matters. Overflow wraps around."""
    first, *others = _ATTRIBUTES[label]
    whole = words[first]
    for word in others:
        whole = whole * np.uint64(0x9E3779B97F4A7C15) + words[word]
    return whole
