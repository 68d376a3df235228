"""Parses a claim from one sentence, such as `llama-3.1-70b fp16 on 1x h100: 2800 tok/s`. Errors suggest a fix.

SENTENCE  = SETUP ":" FIGURE | SETUP ":" ("fits" | "does not fit") | PART QUANTITY ":" FIGURE ["sparse" | "dense"]
            | PART QUANTITY ":" RATIO "of" PART
SETUP     = MODEL [PRECISION] "on" [COUNT "x"] PART {OPTION}
OPTION    = "with" ENGINE | "in" TOKENS ["/" TOKENS] | "at" COUNT "users" | "drafting" | "without" "drafts"
FIGURE    = a number with its unit: 2800 tok/s, 350 tok/s/gpu, 25 ms, 400 ms to first token, 512 requests
"""

import difflib
import re
from typing import TYPE_CHECKING, Final

from penstock.audit.claims.amount import parse_amount
from penstock.audit.claims.claim import Claim, Statement
from penstock.audit.claims.hardware_claims import MEASURES, QUANTITIES, FlopsBasis, RatioStatement, SpecStatement
from penstock.audit.claims.memory_claims import FitStatement
from penstock.audit.evidence.weight_formats import PRECISIONS, precision_name
from penstock.audit.parsing.claim_keys import served_setup, speed_statement
from penstock.audit.parsing.claim_terms import accelerator_name, counted_accelerator, engine_name, model_name, variants
from penstock.errors import UsageError
from penstock.units import parse_tokens

if TYPE_CHECKING:
    from penstock.audit.claims.speed_claims import Metric

_MAX_CHARACTERS: Final = 300
_SHAPES: Final = (
    "'llama-3.1-70b fp16 on 1x h100: 2800 tok/s', 'llama-3.1-405b fp8 on 2x mi300x: fits', 'h100 fp8: 3958 TFLOPS' or "
    "'mi300x memory: 1.5x of h100'"
)
_OPTIONS: Final = re.compile(
    r"\s*(?:with\s+(?P<engine>[a-z][\w.-]*)|in\s+(?P<input>[\d,_]+k?)(?:\s*/\s*(?P<output>[\d,_]+k?))?"
    r"|at\s+(?P<users>[\d,_]+)\s+(?:concurrent\s+)?(?:users?|requests?|concurrent)"
    r"|(?:at\s+)?(?:batch|concurrency)(?:\s+of)?\s+(?P<batch>[\d,_]+)|(?P<drafting>drafting)"
    r"|(?P<plain>without\s+drafts)),?(?=\s|$)",
    re.IGNORECASE,
)
_DEVICES_END: Final = re.compile(
    r",|\s(?=(?:with|in|at|batch|concurrency|drafting|without)\s|drafting$)", re.IGNORECASE
)
_RACK: Final = "nvl72"
_OF_A_RACK: Final = ("link", "link_domain", "wavefront")
"""Quantities that have the same value for a rack and for one device."""
_FIRST: Final = re.compile(r"\s*(?:to\s+(?:the\s+)?first\s+token|ttft)\s*$|^ttft(?:\s+of)?\s+", re.IGNORECASE)
_EACH: Final = re.compile(
    r"\s*(?:per\s+(?:output\s+)?token|a\s+token|tpot|itl)\s*$|^(?:tpot|itl)(?:\s+of)?\s+", re.IGNORECASE
)
_QUANTITIES: Final = {
    "memory bandwidth": "bandwidth",
    "hbm bandwidth": "bandwidth",
    "compute units": "compute_units",
    "cus": "compute_units",
    "sms": "compute_units",
    "vram": "memory",
    "hbm": "memory",
    "power": "tdp",
    "nvlink": "link",
    "wavefront size": "wavefront",
    "warp size": "wavefront",
    "link domain": "link_domain",
}
"""Synonyms of the names of an accelerator's quantities."""


def parse_sentence(text: str) -> Claim:
    """Parse a sentence that states one claim."""
    shown = " ".join(text.split())
    if not shown or len(shown) > _MAX_CHARACTERS:
        raise UsageError(f"a claim is one sentence of up to {_MAX_CHARACTERS} characters; write {_SHAPES}")
    about, colon, said = shown.rpartition(": ") if ": " in shown else shown.rpartition(":")
    if not colon or not about.strip() or not said.strip():
        raise UsageError(f"'{shown[:60]}' has no figure after a colon; write {_SHAPES}")
    statement = _of_setup(about, said.strip()) if re.search(r"\son\s", about) else _of_part(about, said.strip())
    return Claim(id="claim", statement=statement, words=shown)


def _of_setup(about: str, said: str) -> Statement:
    left, where = re.split(r"\son\s", about, maxsplit=1)
    found = _model_and_format(left.split())
    end = _DEVICES_END.search(where)
    device = where if end is None else where[: end.start()]
    (part, devices), read = _devices(device)
    found |= _options(where[len(read) :].lstrip(","))
    if re.fullmatch(r"fits|runs|(?:does(?: not|n't)) (?:fit|run)", said, re.IGNORECASE):
        return _fit(found, (part, devices), fits=said.lower() in {"fits", "runs"})
    first = _FIRST.search(said) is not None
    amount = parse_amount(_EACH.sub("", _FIRST.sub("", said)))
    metric: Metric = "ttft" if first else {"s": "tpot", "count": "requests"}.get(amount.measure, "throughput")  # type: ignore[assignment] # three of its words
    return speed_statement(served_setup(found, (part, devices)), metric, amount)


def _devices(text: str) -> tuple[tuple[str, int], str]:
    """Find the longest prefix of a text that names an accelerator. Return the accelerator, its count and the prefix."""
    spaces = [at.start() for at in re.finditer(r"(?<=\S)\s", text)]
    for end in (len(text), *reversed(spaces)):
        try:
            return counted_accelerator(text[:end]), text[:end]
        except UsageError:
            continue
    return counted_accelerator(text), text


def _model_and_format(words: list[str]) -> dict[str, object]:
    """Parse a model and an optional format: `llama-3.1-70b fp16` or `Llama 3.1 70B FP16`.

    If the last word is the name of a weight format, it is the format.
    """
    if not words:
        raise UsageError(f"no model is named before `on`; write {_SHAPES}")
    try:
        precision = precision_name(words[-1]) if len(words) > 1 else None
    except UsageError as error:
        try:
            return {"model": model_name(" ".join(words))}
        except UsageError:
            model_name(words[0])
            raise error from None
    if precision is None:
        return {"model": model_name(words[0])}
    return {"model": model_name(" ".join(words[:-1])), "precision": precision}


def _fit(found: dict[str, object], on: tuple[str, int], *, fits: bool) -> Statement:
    """Build a fit statement. One request of the stated length must fit for each user."""
    setup = served_setup(found, on)
    context = (setup.input_tokens or 0) + (setup.output_tokens or 0)
    if setup.concurrency is not None and not context:
        raise UsageError(
            f"the claim has {setup.concurrency} users but no request lengths; add lengths such as `in 8k/1k`, or "
            "leave out the users"
        )
    return FitStatement(
        model=setup.model,
        accelerator=setup.accelerator,
        devices=setup.devices,
        fits=fits,
        precision=setup.precision,
        context_tokens=context or None,
        requests=setup.concurrency or 1,
    )


def _options(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    at = 0
    while text[at:].strip(" ,"):
        option = _OPTIONS.match(text, at)
        if option is None or option.end() == at:
            raise UsageError(
                f"'{text[at:].strip()[:40]}' is not a known option of a claim; use `with vllm`, `in 1024/1024` or `at "
                "64 users`"
            )
        at = option.end()
        found |= _option(option)
    return found


def _option(option: "re.Match[str]") -> dict[str, object]:
    if option["engine"]:
        return {"engine": engine_name(option["engine"])}
    if option["input"]:
        lengths = {name: option[name] for name in ("input", "output") if option[name]}
        return {name: parse_tokens(text.replace(",", "").replace("_", "")) for name, text in lengths.items()}
    users = option["users"] or option["batch"]
    if users:
        count = int(users.replace(",", "").replace("_", "") or 0)
        if not 1 <= count <= 10**6:
            raise UsageError(f"{users} users is out of range; write 1 to 1,000,000")
        return {"concurrency": count}
    return {"drafts": bool(option["drafting"])}


def _of_part(about: str, said: str) -> Statement:
    words = about.split()
    if len(words) < 2:  # an accelerator and its quantity
        raise UsageError(f"'{about[:40]}' does not name an accelerator and a quantity; write {_SHAPES}")
    two = " ".join(words[-2:]).lower()
    named = words[:-2] if two in _QUANTITIES and len(words) > 2 else words[:-1]  # a name before both
    quantity = " ".join(words[len(named) :]).lower()
    quantity = _QUANTITIES.get(quantity, quantity)
    rack = len(named) > 1 and named[-1].lower() == _RACK
    part = accelerator_name("_".join(named[:-1] if rack else named))
    if quantity not in QUANTITIES:
        near = difflib.get_close_matches(quantity[:20], [*QUANTITIES, *PRECISIONS], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(QUANTITIES)}"
        raise UsageError(f"'{quantity[:40]}' is not a quantity of an accelerator; {hint}")
    ratio = re.fullmatch(r"(.+?)\s*(?:of|over|vs)\s+(.+)|(.+(?:x|times))\s+([a-z].*)", said, re.IGNORECASE)
    if ratio is not None:
        amount = parse_amount(ratio[1] or ratio[3], "times", "number")
        over = accelerator_name((ratio[2] or ratio[4]).strip())
        return RatioStatement(accelerator=part, over=over, quantity=quantity, amount=amount)
    bare, basis = _basis(said)
    measure = MEASURES[quantity]
    allowed = (measure, "number") if measure == "count" else (measure,)
    return SpecStatement(
        accelerator=part,
        quantity=quantity,
        amount=parse_amount(bare, *allowed),
        basis=basis,
        scope="rack" if rack and quantity not in _OF_A_RACK else "device",
        variants=variants("_".join(named)),
    )


def _basis(said: str) -> tuple[str, FlopsBasis]:
    for words in ("sparse", "with sparsity", "dense", "without sparsity"):
        if said.lower().endswith(f" {words}"):
            return said[: -len(words) - 1], "sparse" if words in {"sparse", "with sparsity"} else "dense"
    return said, "unstated"
