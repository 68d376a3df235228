"""Builds the subject of a preflight from a checkpoint, and finds the smallest split that holds the checkpoint."""

from collections.abc import Iterable

from penstock.catalog.accelerator import Accelerator
from penstock.checkpoint import Checkpoint, StoredTensor
from penstock.checkpoint.fp8.scan import Fp8Scan
from penstock.errors import ConfigError
from penstock.fleet import Deployment, Parallelism
from penstock.fleet.serving_engines import ServingEngine, serving_defaults
from penstock.performance import minimum_devices
from penstock.performance.memory.budget import usual_context_tokens
from penstock.preflight.facts.quantisation_scheme import read_scheme
from penstock.preflight.facts.situation import ScannedFacts, StoredFacts, Subject


def subject_of(checkpoint: Checkpoint, name: str) -> Subject:
    """Return the preflight subject of a checkpoint. `name` is the model's name in a launch command."""
    return Subject(
        model=checkpoint.spec,
        scheme=read_scheme(checkpoint.spec, checkpoint.config, checkpoint.sidecar),
        name=_callable_name(checkpoint, name),
        repository=_repository(checkpoint, name),
        assumed=checkpoint.assumed,
        rope=_rope(checkpoint),
        stored=None if checkpoint.tensors is None else stored_facts(checkpoint.tensors),
    )


def _rope(checkpoint: Checkpoint) -> str | None:
    """Return the type of `rope_scaling`.

    Configs store the type of RoPE scaling under one of two keys. The catalog omits the type.
    """
    config = checkpoint.config
    if config is None:
        return None
    try:
        scaling = config.optional("rope_scaling")
        stated = None if scaling is None else scaling.text("rope_type", "type", default="default")
    except ConfigError:
        return None
    return stated or ("default" if checkpoint.repository is None else None)


def _callable_name(checkpoint: Checkpoint, name: str) -> str:
    """Return the model's repository, or its directory if it is on disk.

    Engines load a directory, not its config.json.
    """
    if (repository := _repository(checkpoint, name)) is not None:
        return repository
    return name.removesuffix("config.json").rstrip("/") or "." if name.endswith("config.json") else name


def _repository(checkpoint: Checkpoint, name: str) -> str | None:
    if checkpoint.repository is not None:
        return checkpoint.repository
    return name.removeprefix("hf:").partition("@")[0] if name.startswith("hf:") else None


def stored_facts(tensors: Iterable[StoredTensor]) -> StoredFacts:
    """Summarise tensor headers by their dtypes and by the last components of the tensor names."""
    dtypes, kinds = set[str](), set[str]()
    for tensor in tensors:
        dtypes.add(tensor.dtype)
        kinds.add(tensor.name.rsplit(".", 1)[-1])
    return StoredFacts(dtypes=frozenset(dtypes), kinds=frozenset(kinds))


def scanned_facts(scan: Fp8Scan) -> ScannedFacts:
    """Return the results of a checkpoint scan that preflight rules use."""
    return ScannedFacts(fp8_nan=scan.has_nan_codes, e8m0_top=scan.has_e8m0_top)


def smallest_split(
    subject: Subject, accelerator: Accelerator, context_tokens: int | None, engine: ServingEngine = "vllm"
) -> Parallelism:
    """Return the smallest split that holds the model within two nodes or one link domain.

    If no such split holds the model, return tensor parallelism over one whole node.
    """
    placed = Deployment(model=subject.model, accelerator=accelerator, engine=serving_defaults(engine, accelerator))
    found = minimum_devices(placed, context_tokens or usual_context_tokens(subject.model))
    whole = Parallelism(tp=accelerator.node.devices)
    linked = (accelerator.link.domain_devices if accelerator.link else None) or 0
    if found is None or found.deployment.parallelism.devices > max(2 * accelerator.node.devices, linked):
        return whole
    return found.deployment.parallelism
