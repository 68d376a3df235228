"""Collects the weights of a checkpoint. Readers of architectures add weights, and the inventory sets their formats."""

from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.model.model_spec import Layer
from penstock.model.quantisation import Quantisation
from penstock.model.sequence_mixers import SequenceMixer
from penstock.model.weight import FP32, Part, Split, Weight, WeightFormat

_MAX_WEIGHTS = 200_000


@dataclass(kw_only=True)
class Inventory:
    """Weights and layers of one model while its config is read."""

    quantisation: Quantisation
    dtype: WeightFormat
    weights: list[Weight] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    layer: int | None = None
    part_override: Part | None = None
    """Part of the model, such as the vision tower, to which all added weights are assigned. None if each weight keeps
    its own part."""

    def layer_done(self, mixer: SequenceMixer | None, feed_forward: str) -> None:
        """Close the current decoder layer."""
        if self.layer is None:
            raise ValueError("no layer is open")
        self.layers.append(Layer(index=self.layer, mixer=mixer, feed_forward=feed_forward))
        self.layer = None

    def linear(
        self,
        module: str,
        shape: tuple[int, int],
        part: Part,
        *,
        split: Split = Split.REPLICATED,
        units: int | None = None,
        bias: bool = False,
        copies: int = 1,
        active: int | None = None,
    ) -> None:
        """Add a matrix of shape (outputs, inputs) that quantisation can convert, and its bias."""
        axis = 1 if split is Split.ROW else 0
        self._add(
            Weight(
                module=module,
                shape=shape,
                part=self.part_override or part,
                format=self.quantisation.format_of(module, part) or self.dtype,
                split=split,
                units=units or shape[axis],
                copies=copies,
                active_copies=copies if active is None else active,
                layer=self.layer,
                quantisable=part not in {Part.LM_HEAD, Part.ROUTER, Part.EMBEDDING},
            )
        )
        if bias:
            whole = split is Split.ROW
            self.vector(
                f"{module}.bias",
                shape[0],
                part,
                split=Split.REPLICATED if whole else split,
                units=None if whole else units,
                copies=copies,
                active=active,
            )

    def vector(
        self,
        module: str,
        size: int | tuple[int, ...],
        part: Part = Part.NORM,
        *,
        split: Split = Split.REPLICATED,
        units: int | None = None,
        copies: int = 1,
        active: int | None = None,
        fp32: bool = False,
    ) -> None:
        """Add a norm, bias, convolution or other small tensor that is never quantised."""
        shape = (size,) if isinstance(size, int) else size
        self._add(
            Weight(
                module=module,
                shape=shape,
                part=self.part_override or part,
                format=FP32 if fp32 else self.dtype,
                split=split,
                units=units or shape[0],
                copies=copies,
                active_copies=copies if active is None else active,
                layer=self.layer,
            )
        )

    def embedding(self, module: str, vocab: int, width: int) -> None:
        """Add the input embedding table, split by vocabulary."""
        self.vector(module, (vocab, width), Part.EMBEDDING, split=Split.VOCAB)

    def head(self, module: str, vocab: int, width: int, *, tied: bool, bias: bool = False) -> None:
        """Add the output head, unless it is tied to the embedding table."""
        if not tied:
            self.linear(module, (vocab, width), Part.LM_HEAD, split=Split.VOCAB, bias=bias)

    def _add(self, weight: Weight) -> None:
        if len(self.weights) >= _MAX_WEIGHTS:
            raise ConfigError(f"the config implies more than {_MAX_WEIGHTS:,} weights, which no real model has")
        self.weights.append(weight)
