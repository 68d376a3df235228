"""Describes the questions that an agent may ask: read-only tools with typed arguments and documents.

`penstock mcp` serves these tools. Their arguments are those of the API functions, so that they are declared once.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from penstock.api.answer import ApiAnswer
from penstock.api.audit import audit
from penstock.api.catalog import catalog
from penstock.api.document_schemas import DOCUMENTS, json_schema
from penstock.api.fit import fit
from penstock.api.options.fit_options import FitOptions
from penstock.api.options.option_fields import flags_of
from penstock.api.options.predict_options import SweepOptions
from penstock.api.options.preflight_options import PreflightOptions
from penstock.api.options.simulate_options import SimulateOptions
from penstock.api.plan import plan, read_plan
from penstock.api.preflight import preflight
from penstock.api.simulate import simulate
from penstock.api.sweep import predict_loads
from penstock.errors import UsageError

MAX_TEXT: Final = 100_000
"""Maximum number of characters of one argument."""
MAX_REQUESTS: Final = 100_000
"""Maximum number of simulated requests per call."""
_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "int": ("integer", (int,)),
    "float": ("number", (int, float)),
    "bool": ("boolean", (bool,)),
}
_WITHHELD: Final = frozenset(
    {"calibration", "columns", "explain", "fleet", "host", "log_steps", "rules", "scan", "trace"}
)
"""Options that read files of the host, or write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgument:
    """Type, limits and help of one argument."""

    help: str
    kind: str = "string"
    accepted: tuple[type, ...] = (str,)
    required: bool = False
    min: float | None = None
    max: float | None = None

    def schema(self) -> dict[str, object]:
        """Return the JSON schema of the argument."""
        made: dict[str, object] = {"type": self.kind, "description": self.help}
        limits = {"minimum": self.min, "maximum": self.max}
        return made | {name: limit for name, limit in limits.items() if limit is not None}

    def check(self, name: str, value: object) -> None:
        """Raise an error if a value has another type, or is outside the limits."""
        is_wrong_bool = isinstance(value, bool) and self.kind != "boolean"
        if is_wrong_bool or not isinstance(value, self.accepted):
            raise UsageError(f"{name} must be of type {self.kind}, not {type(value).__name__}")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise UsageError(f"{name} has {len(value):,} characters; at most {MAX_TEXT:,} are read")
        if isinstance(value, int | float) and self.max is not None and not value <= self.max:
            raise UsageError(f"{name} must be at most {self.max:g}, not {value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """One question, with its arguments and the documents that answer it."""

    name: str
    question: str
    arguments: Mapping[str, ToolArgument]
    documents: tuple[str, ...]
    ask: Callable[..., ApiAnswer]

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {name: one.schema() for name, one in self.arguments.items()},
            "required": [name for name, one in self.arguments.items() if one.required],
            "additionalProperties": False,
        }

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the document. A tool with several documents answers with one of them."""
        shapes: list[Any] = [json_schema(name) for name in self.documents]
        definitions = {name: shape for one in shapes for name, shape in one.pop("$defs", {}).items()}
        shared = {"$defs": definitions} if definitions else {}
        if len(shapes) == 1:
            return {**shapes[0], **shared}
        inner = [{key: value for key, value in one.items() if not key.startswith("$")} for one in shapes]
        return {"type": "object", "anyOf": inner, **shared}

    def answer(self, given: Mapping[str, object]) -> dict[str, object]:
        """Check the arguments, ask, and return the document."""
        unknown = sorted(set(given) - set(self.arguments))
        if unknown:
            raise UsageError(f"{self.name} has no argument {', '.join(name[:40] for name in unknown)}")
        missing = [name for name, one in self.arguments.items() if one.required and given.get(name) is None]
        if missing:
            raise UsageError(f"{self.name} needs {', '.join(missing)}")
        known = {name: value for name, value in given.items() if value is not None}
        for name, value in known.items():
            self.arguments[name].check(name, value)
        return self.ask(**known).to_dict()


def _arguments(declared: type, *, also_without: frozenset[str] = frozenset()) -> dict[str, ToolArgument]:
    """Return the arguments that a class of options declares, without those about files or text."""
    made = {}
    for name, (flag, field) in flags_of(declared).items():
        if name in _WITHHELD | also_without:
            continue
        kind, accepted = _TYPES.get(str(field.type).split(" | ")[0], ("string", (str, int)))
        made[name] = ToolArgument(
            help=flag.help,
            kind=kind,
            accepted=accepted,
            required=field.default is MISSING or name in {"model", "on"},
            min=flag.min,
            max=MAX_REQUESTS if name == "requests" else flag.max,
        )
    return made


def _documents(*prefixes: str) -> tuple[str, ...]:
    return tuple(name for name in DOCUMENTS if name.partition("/")[0] in prefixes)


def _plan_of_text(text: str) -> ApiAnswer:
    """Plan a text. A trace is refused: an error about its columns would show an agent the first line of any file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.yaml"
        file.write_text(text, encoding="utf-8")
        asked = read_plan(file)
    for workload in asked.workloads:
        if workload.trace is not None:
            raise UsageError(
                f"{workload.name}: the tool reads no files of the host; write `lengths:` instead of `trace:`"
            )
    return plan(asked)


def _audit_of_text(claim: str) -> ApiAnswer:
    return audit(claim)


def _catalog_of_text(what: str, names: str = "") -> ApiAnswer:
    return catalog(what, *names.replace(",", " ").split())  # type: ignore[arg-type] # an unknown word is refused


TOOLS: Final[Mapping[str, AgentTool]] = {
    tool.name: tool
    for tool in (
        AgentTool(
            name="fit",
            question="Does the model fit on these accelerators, and how much memory is left for the KV cache?",
            arguments=_arguments(FitOptions),
            documents=_documents("penstock.fit", "penstock.fit-together"),
            ask=fit,
        ),
        AgentTool(
            name="predict",
            question="How fast will the model run, with P10-P90 intervals and the nearest public measurements?",
            arguments=_arguments(SweepOptions),
            documents=_documents("penstock.predict", "penstock.predict-disaggregated", "penstock.sweep"),
            ask=predict_loads,
        ),
        AgentTool(
            name="simulate",
            question="How does a deployment behave under load, and which request rate keeps the SLO?",
            arguments=_arguments(SimulateOptions),
            documents=_documents("penstock.simulate"),
            ask=simulate,
        ),
        AgentTool(
            name="plan",
            question="Which fleet is cheapest for these workloads? Takes the text of a plan.yaml. Can take minutes.",
            arguments={"text": ToolArgument(help="A plan file, as `penstock plan --init` prints it.", required=True)},
            documents=_documents("penstock.plan"),
            ask=_plan_of_text,
        ),
        AgentTool(
            name="preflight",
            question="Will this checkpoint start and compute correctly on this accelerator, and with which command?",
            arguments=_arguments(PreflightOptions, also_without=frozenset({"matrix"})),
            documents=_documents("penstock.preflight", "penstock.preflight-unread"),
            ask=preflight,
        ),
        AgentTool(
            name="audit",
            question="Is each figure of this text possible, and is it near what was published?",
            arguments={"claim": ToolArgument(help="llama-3.1-70b fp16 on 1x h100: 2800 tok/s", required=True)},
            documents=_documents("penstock.audit"),
            ask=_audit_of_text,
        ),
        AgentTool(
            name="catalog",
            question="What is known about accelerators, prices and models, from which sources?",
            arguments={
                "what": ToolArgument(help="list, show, diff, prices or models.", required=True),
                "names": ToolArgument(help="Accelerators: one for show and prices, two for diff."),
            },
            documents=tuple(name for name in DOCUMENTS if name.startswith("penstock.catalog.")),
            ask=_catalog_of_text,
        ),
    )
}
"""Tools by name."""
