"""What is known about a run, measured or asked for? Words that make it kin to others, its load, its day, its work."""

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
WORDS: Final = ("vendor", "part", "engine", "mixers", "ffn", "family", "weights", "split")
"""What is said about a run: who made the part, which part, what served, how layers mix a sequence and what feeds
forward, the very shape of the model, how its weights are stored and how it is split."""
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
    "setup": ("family", "part", "engine", "weights", "split"),
}
"""Words two runs may share, alone and together."""
_DAYS_A_MONTH: Final = 30.4


@dataclass(frozen=True, kw_only=True, eq=False)
class Cases:
    """One entry per run everywhere."""

    light: Array
    """Work of the average step, a column per part."""
    words: Mapping[str, Codes]
    users: Array
    input_tokens: Array
    output_tokens: Array
    day: Array
    """Ordinal of the date."""
    undated: npt.NDArray[np.bool_]
    """A median over months, known only to be no newer than its day."""

    def __len__(self) -> int:
        return len(self.users)

    @cached_property
    def labels(self) -> Mapping[str, Codes]:
        """A number for each label, equal where all of its words are."""
        return {name: joined_label(self.words, name) for name in LABELS}

    @cached_property
    def log_load(self) -> tuple[Array, Array, Array]:
        """Doublings of users and of both lengths."""
        return np.log2(self.users), np.log2(self.input_tokens), np.log2(self.output_tokens)

    @property
    def months(self) -> Array:
        """The date in months."""
        return self.day / _DAYS_A_MONTH

    def take(self, kept: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Cases":
        """Keep some."""
        return Cases(
            light=self.light[kept],
            words={word: codes[kept] for word, codes in self.words.items()},
            users=self.users[kept],
            input_tokens=self.input_tokens[kept],
            output_tokens=self.output_tokens[kept],
            day=self.day[kept],
            undated=self.undated[kept],
        )


@dataclass(frozen=True, slots=True)
class DrivenEngine:
    """An engine and how it was driven: runs that differ in either are measurements of different things."""

    name: str
    scenario: Scenario

    @classmethod
    def parse(cls, word: str) -> Self:
        """Read what `word` wrote."""
        name, _, last = word.rpartition(" ")
        scenario: Scenario | None = next((known for known in get_args(Scenario) if known == last), None)
        return cls(word, "online") if scenario is None else cls(name, scenario)

    @property
    def word(self) -> str:
        """The word that makes runs alike: the engine, and how it was driven where that is not serving."""
        return self.name if self.serving else f"{self.name} {self.scenario}"

    @property
    def serving(self) -> bool:
        """Whether it answered users as they came."""
        return self.scenario == "online"


def labels_of_run(deployment: Deployment, engine: str) -> dict[str, str]:
    """Say what runs; `engine` is the one whose measurements count, and how it was driven where that is not serving."""
    part, split = deployment.accelerator, deployment.parallelism
    return {
        "vendor": str(part.vendor),
        "part": part.id,
        "engine": engine,
        "mixers": mixers_of(deployment.model),
        "ffn": "dense" if deployment.model.experts is None else "mixture",
        "family": shape_of(deployment.model),
        "weights": weights_label(deployment.model),
        "split": f"tp{split.tp} pp{split.pp} dp{split.dp} ep{split.expert_parallel:d}",
    }


def family_of(model: ModelSpec) -> str:
    """Name a shape: fine-tunes and point releases of one model are one family."""
    return f"{model.architecture} {model.hidden_size}x{len(model.layers)}"


def shape_of(model: ModelSpec) -> str:
    """Name a shape with its experts: a wider mixture of the same layers is another model."""
    experts = model.experts
    return family_of(model) + ("" if experts is None else f" {experts.routed}/{experts.per_token}")


def weights_label(model: ModelSpec) -> str:
    """The format most weight bytes are in, as measurements name it."""
    largest = next(iter(model.formats))
    return largest if largest in FORMATS else BF16.name


def mixers_of(model: ModelSpec) -> str:
    """Name how its layers mix a sequence."""
    return "+".join(sorted({layer.mixer.kind for layer in model.layers if layer.mixer is not None}))


def coded(words: Sequence[str]) -> Codes:
    """Numbers that are equal where the words are, whatever table they stand in."""
    digests = (blake2b(word.encode(), digest_size=8).digest() for word in words)
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)


def joined_label(words: Mapping[str, Codes], label: str) -> Codes:
    """Combine the words of a label so that their order counts; overflow wraps around."""
    first, *others = LABELS[label]
    whole = words[first]
    for word in others:
        whole = whole * np.uint64(0x9E3779B97F4A7C15) + words[word]
    return whole
