"""Reads the claims of a line: each figure with its unit, accelerator, model and load. What is not read is listed."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from penstock.audit.claim import Amount, Claim, Setup
from penstock.audit.names import Mention, accelerators, formats, load_words, models, variants_of
from penstock.catalog import load_accelerator, load_prices, priced_ids
from penstock.catalog.seller import seller_of
from penstock.units import GB, GIB, TERA

_NUMBER: Final = r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)([kmb](?![a-z/]))?"
_BYTES: Final = r"(?:[gt]i?b|gigabytes|terabytes)"
_UNITS: Final = {
    "bytes/s": rf"{_BYTES}(?:/s(?:ec)?|ps| per second)",
    "bytes": rf"{_BYTES}(?![a-z])",
    "flops/s": r"(?:[tpeg]|tera|peta|exa)(?:flops?|flop)(?:/s)?|[pe]f(?![a-z])|tops(?![a-z])",
    "watts": r"k?w(?:atts?)?(?![a-z])",
    "tokens/s": r"(?:(?:output|total|input|decode) )?(?:tokens?|tok|t)(?: ?/ ?s(?:ec(?:ond)?)?| per second| a second)"
    r"|tps(?![a-z])",
    "s": r"ms(?![a-z])|milliseconds",
    "share": r"%|percent",
    "times": r"(?:x|\u00d7|times|-?fold)(?![a-z0-9])",
    "compute_units": r"(?:compute units|cus)(?![a-z])",
}
_AMOUNT: Final = re.compile(
    rf"(?i)(?<![\w.$-])(?P<usd>\$\s?)?{_NUMBER}(?:\s?(?:-|\u2013|to|and)\s?\$?{_NUMBER})?\s*-?"
    rf"(?P<unit>{'|'.join(f'(?:{pattern})' for pattern in _UNITS.values())})?(?!\w)"
    r"|\b(?P<word>half(?= (?:the (?!gap)|as |that ))|twice|doubles?|triples?)\b"
)
_SCALES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_SIZES: Final = {"k": 1e3, "g": GB, "t": TERA, "p": 1e15, "e": 1e18}
_WORDS: Final = {"half": 0.5, "twice": 2.0, "double": 2.0, "triple": 3.0}
_ABOUT: Final = r"(?:~|\u2248|\b(?:about|roughly|approximately|around|nearly|almost|some|estimated))\s*(?:an? )?$"
_LEAST: Final = r"(?:>=?|\u2265|\b(?:over|above|more than|at least|exceeds?|exceeding))\s*$"
_MOST: Final = r"(?:<=?|\u2264|\b(?:under|below|less than|at most|up to))\s*$"
_PER: Final = {
    "usd/h": r"(?i)\s*(?:/|per |an? )\s?(?:gpu|accelerator|card|device)?[ -/]*(?:h\b|hr\b|hour)",
    "usd/Mtok": r"(?i)\s*(?:/|per |a )\s?(?:m\b|mtok|million|1m)\s*(?:(output|input|total) )?(?:tok\w*)?",
}
_PER_GPU: Final = r"(?i)\s*(?:/| per )\s?(gpu|device|card|accelerator|chip|user)"
_PER_DOLLAR: Final = r"per dollar|per-dollar|/\$|perf/tco|for the money"
_LINK: Final = r"nvlink|infinity fabric|interconnect|xgmi"
_METRICS: Final = {
    "per_dollar": _PER_DOLLAR,
    "price": r"cheaper|dearer|price\w*|costs?\b|discount|rent\w*|less per unit|expensive|savings?\b|saves\b|lists?\b"
    r"|off\b",
    "bandwidth": "bandwidth",
    "memory": r"memory|capacity|hbm\w*|vram",
    "tdp": r"\btdp\b|power|watts|draws",
    "rate": r"throughput|faster|slower|fast|performance|tokens?|tok/s|inference|speed\w*|beats|outperforms|quicker",
    "flops": r"compute\b|[tp]flops|flops|peak",
    "link": _LINK,
}
_REFERENCE: Final = (
    r"\b(?:than|over|of|to|vs\.?|versus|against|from|trails|beats|behind)\s+(?:(?:an?|the|that of|one|single|"
    r"equivalent|comparable|renting|nvidia'?s?|amd'?s?|instinct|prior)\s+)*(?:\d+x? )?$"
)
_LESS: Final = r"less|cheaper|lower|slower|fewer|discount|off\b|reduction|below|trail|behind|saves"
_FITS: Final = (
    r"\b(?:(?P<no>(?:does not|doesn't|do not|don't|cannot|can't|won't|will not|not)\s+(?:\w+\s+)?(?:fit|hold|run on)\w*"
    r"|too (?:big|large) for)|fits?|fitting|can land on|can (?:be )?(?:hold|held|run|serve)\w* on)\b"
)
_LEFT: Final = r"\b(?:leav\w+|left|headroom|free|spare|remain\w*)\b"
_CACHE: Final = r"\b(?:kv|cache)\b"
_WEIGHTS: Final = r"\b(?:weights?|needs?|takes?|requires?|occup\w+|weighs?|loads?)\b"
_OWNER: Final = (
    r"(?i)\s?(?:(?:of )?(?:hbm\w*|memory|bandwidth|gddr\w*) )?(?:(?:for|on|of|from|in|per) )?"
    r"(?:(?:the|an?|each|every|one) )?(?:amd |nvidia )?"
)
"""What may stand between a figure and the accelerator that it is about."""
_FEWEST: Final = r"\b(?:at least|minimum(?: of)?|needs|requires|fewest)\s+$"
_EACH: Final = r"\b(?:per[- ]gpu|every gpu|each gpu|per[- ](?:card|device|accelerator)|apiece)\b"
_KINDS: Final = {
    "rent_spot": r"\bspot\b|preemptible|interruptible",
    "rent_contract": r"contract|reserved|committed|\b(?:one|1|three|3)-?\s?year",
    "rent_block": "capacity block",
    "rent_on_demand": r"on[- ]demand",
    "rent": r"\b(?:rent\w*|hour\w*|instances?|cloud\w*)\b|/hr?\b",
    "purchase": r"\b(?:per unit|unit|list|sells?|sold|purchase|buy)\b",
}
_SENTENCES: Final = r"(?<=[.!?])\s+(?=[A-Z\"'(\u201c])|\s[-\u2022]\s(?=[A-Z])|\s##+\s|---+|\u2502"
_TOTAL: Final = "a total cost follows from inputs that a sentence does not have; `penstock plan` checks it"


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


class _Found(NamedTuple):
    """A figure in a line, and where it stands."""

    amount: Amount
    start: int
    end: int


class _Line(NamedTuple):
    """A line with all that was found in it. `plain` has the found words blanked."""

    text: str
    plain: str
    parts: tuple[Mention, ...]
    models: tuple[Mention, ...]
    formats: tuple[tuple[int, int, str], ...]
    load: dict[str, object]

    def before(self, found: _Found, length: int = 40) -> str:
        """Return the words before a figure."""
        return self.plain[max(0, found.start - length) : found.start]

    def after(self, found: _Found, length: int = 40) -> str:
        """Return the words behind a figure."""
        return self.plain[found.end : found.end + length]

    def around(self, found: _Found, before: int, after: int) -> str:
        """Return the words around a figure."""
        return f"{self.before(found, before)} {self.after(found, after)}"


def read_text(text: str) -> list[Claim]:
    """Read the claims of a text, sentence by sentence. Lines without a figure and without a fit claim nothing."""
    claims = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        clean = re.sub(r"[*`|_]{2,}|[`|]|^\s*(?:#+|>|-|\u2022)\s+", " ", line)
        for sentence in re.split(_SENTENCES, clean):
            claims += read_sentence(sentence.strip(), number)
    return claims


def read_sentence(text: str, number: int = 1) -> list[Claim]:
    """Read the claims of a sentence. One with a figure gives at least one claim, of kind `none` if nothing is read."""
    if not (_has(r"\d|\b(?:half the|twice|doubles?|triples?)\b", text) or _has(_FITS, text)):
        return []
    line = _scan(text)
    figures, base = list(_figures(line.plain)), Claim(says=text, line=number, kind="none")
    claims = []
    for found, part in _pair(line, figures):
        told = replace(base, amount=found.amount, setup=_setup(line, part, found.start))
        claim = _claim(line, found, part, told, {figure.amount.unit for figure in figures})
        claims.append(replace(told, why=claim) if isinstance(claim, str) else claim)
    if not any(claim.kind == "left" for claim in claims):
        claims += _fits(line, base)
    read = [claim for claim in claims if claim.kind != "none"]
    unread = [claim for claim in claims if claim.kind == "none"]
    if not claims and _has(r"\d", line.plain):
        unread = [replace(base, why="it has no figure with a known unit")]
    # Where part of a sentence is read, each other figure is listed; else the sentence is listed once.
    return [*read, *unread] if read else unread[:1]


def _scan(text: str) -> _Line:
    named = tuple(models(text))
    plain = _blank(text, [(one.start, one.end) for one in named])
    parts = tuple(accelerators(plain))
    plain = _blank(plain, [(one.start, one.end) for one in parts])
    kinds = tuple(formats(plain))
    load, plain = load_words(_blank(plain, [(start, end) for start, end, _ in kinds]))
    return _Line(text, plain, parts, named, kinds, load)


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _figures(text: str) -> Iterator[_Found]:
    for match in _AMOUNT.finditer(text):
        said, end = (match["unit"] or "").lower(), match.end()
        unit = next((name for name, pattern in _UNITS.items() if re.match(pattern, said)), "") if said else ""
        size = _size(unit, said)
        if match["word"]:
            value, written = _WORDS[match["word"].lower().removesuffix("s")], match[0]
            yield _Found(
                Amount(low=value, high=value, unit="times", written=written, slack_fraction=0.1), match.start(), end
            )
        elif match["usd"]:
            last = max(match.end(group) for group in range(2, 6))
            per = {name: hit for name, pattern in _PER.items() if (hit := re.compile(pattern).match(text, last))}
            unit = next(iter(per), "usd")
            end, size = (per[unit].end() if per else end), 1.0
        elif unit == "tokens/s" and (each := re.compile(_PER_GPU).match(text, end)):
            unit, end = "tokens/s/user" if each[1].lower() == "user" else "tokens/s/device", each.end()
        if unit:
            yield _Found(_amount(text, match, unit, size), match.start(), end)


def _size(unit: str, said: str) -> float:
    if unit.startswith("bytes") and "ib" in said[:3]:
        return GIB * (1.0 if said[0] == "g" else 1024.0)
    if unit in {"bytes", "bytes/s", "flops/s", "watts"}:
        return _SIZES.get(said[0], 1.0)
    return {"s": 1e-3, "share": 0.01}.get(unit, 1.0)


def _amount(text: str, match: "re.Match[str]", unit: str, size: float) -> Amount:
    values, slack, before = [], 0.02, text[max(0, match.start() - 16) : match.start()]
    for group in (2, 4) if match[4] else (2,):
        thousands = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", match[group])
        digits = match[group].replace(",", "" if thousands else ".")
        scale = size * _SCALES[(match[group + 1] or match[5] or "").lower()]
        values.append(float(digits) * scale)
        half_a_digit = 0.5 * 10.0 ** -len(digits.partition(".")[2]) * scale
        slack = max(slack, half_a_digit / values[-1] if values[-1] else 0.0)
    about = _has(_ABOUT, before)
    return Amount(
        low=min(values),
        high=max(values),
        unit=unit,
        written=match[0].strip(),
        slack_fraction=max(min(slack, 0.05), 0.1 if about else 0.0),
        at_least=_has(_LEAST, before),
        at_most=_has(_MOST, before),
    )


def _pair(line: _Line, figures: list[_Found]) -> Iterator[tuple[_Found, Mention | None]]:
    """Yield each figure with its accelerator: the one directly behind it, or else the last one before it.

    If all names stand before as many figures of one unit, they are paired in their order.
    """
    for found in figures:
        alike = [one for one in figures if one.amount.unit == found.amount.unit]
        after = [part for part in line.parts if found.end <= part.start]
        before = [part for part in line.parts if part.end <= found.start]
        if len(alike) == len(line.parts) > 1 and line.parts[-1].end <= alike[0].start:
            yield found, line.parts[alike.index(found)]
        elif after and re.fullmatch(_OWNER, line.plain[found.end : after[0].start]):
            yield found, after[0]
        else:
            yield found, before[-1] if before else None


def _setup(line: _Line, part: Mention | None, at: int) -> Setup:
    named = [one for one in line.models if one.ident]
    named = [one for one in named if one.end <= at][-1:] or named
    near = [name for start, _, name in line.formats if start <= at][-1:] or [name for *_, name in line.formats][-1:]
    said = Setup(
        model=named[0].ident if named else None,
        precision=near[0] if near else None,
        **line.load,  # type: ignore[arg-type]  # the keys are fields of a setup
    )
    if part is None or part.ident is None:
        return said
    link = load_accelerator(part.ident).link
    devices = part.devices or ((link.domain_devices if link else None) or 72 if part.rack else 1)
    bare = () if part.rack else variants_of(part.text)
    counted = part.devices is not None or part.rack
    return replace(said, accelerator=part.ident, variants=bare, devices=devices, counted=counted)


def _claim(line: _Line, found: _Found, part: Mention | None, base: Claim, units: set[str]) -> Claim | str:
    """Return the claim of a figure, or why it is not read."""
    unit = found.amount.unit
    if part is not None and part.ident is None:
        return f"{part.text} is not in the catalog"
    if found.amount.low <= 0:
        return "the figure must be above 0"
    if unit in {"times", "share"}:
        return _ratio(line, found, base, units)
    if unit.startswith("usd"):
        return _price(line, found, base)
    return (
        _speed(line, found, base) if unit.startswith("tokens/s") or unit == "s" else _hardware(line, found, base, part)
    )


def _hardware(line: _Line, found: _Found, base: Claim, part: Mention | None) -> Claim | str:
    around, unit = line.around(found, 60, 45), found.amount.unit
    if part and _has(r"\s[/=+]\s*~?$", line.before(found)) and not _has(_WEIGHTS, around):
        return "it is a term of a formula"
    kind = _size_kind(line, found, part) if unit == "bytes" and base.setup.model else ""
    if kind:
        return replace(base, kind=kind)
    if part is None:
        return "it names no accelerator for this figure"
    if unit == "bytes" and (_has(_LEFT, around) or _has(_CACHE, line.around(found, 20, 12))):
        return "it does not say what is left or cached of which model"
    quantity = {"bytes": "memory", "bytes/s": "bandwidth", "flops/s": "flops", "watts": "tdp"}.get(unit, unit)
    quantity = "link" if quantity == "bandwidth" and _has(_LINK, around) else quantity
    many = _has(r"\b(?:node|server|box|hgx|dgx|8-gpu)\b", around) or (part.devices or 1) > 1
    scope = "rack" if part.rack or _has(r"\brack\b", around) else "node" if many else "device"
    basis = "sustained" if _has(r"\b(?:sustain\w*|achiev\w*|measured|real-world)\b", around) else ""
    basis = "sparse" if _has("spars", line.text) else basis
    basis = "dense" if _has(r"\bdense|without spars", line.text) else basis
    scope = "device" if _has(_EACH, line.around(found, 30, 15)) else scope
    return replace(base, kind="spec", quantity=quantity, scope=scope, basis=basis)


def _size_kind(line: _Line, found: _Found, part: Mention | None) -> str:
    """Return whether bytes are weights, cache or left beside weights; "" if they are an accelerator's memory."""
    around = line.around(found, 60, 45)
    if part is not None and _has(_LEFT, around):
        return "left"
    if "input_tokens" in line.load and _has(_CACHE, line.around(found, 25, 10).rpartition("+")[2]):
        return "cache"
    touching = part is not None and (abs(found.start - part.end) < 4 or -1 <= part.start - found.end < 4)
    return "weights" if not touching and (_has(_WEIGHTS, around) or _has(r"[:=~]\s*$", line.before(found))) else ""


def _ratio(line: _Line, found: _Found, base: Claim, units: set[str]) -> Claim | str:
    metric, kind, value = _metric(line, found, units), _price_kind(line), _as_ratio(line, found)
    parts = [part for part in line.parts if part.ident]
    several = len({part.ident for part in parts})
    if parts and _has(r"\boff\b.{0,20}\blist\b|volume discount", line.after(found) + line.before(found, 25)):
        return replace(base, kind="discount", amount=value)
    if _has(r"\btco\b|total cost|cost[ -]per[ -]token", line.plain):
        return _TOTAL
    if several < 2:
        terms = metric == "price" and parts and _has(r"list|on[- ]demand", line.plain)
        return replace(base, kind="discount", amount=value, basis=kind) if terms else "it compares with nothing named"
    others = [part for part in parts if _has(_REFERENCE, line.text[: part.start])]
    if several > 2:
        others = [part for part in others if 0 <= part.start - found.end < 45]
        if not others:
            return "it names several accelerators and does not say which two it compares"
    other = next(iter(others), None) or next(part for part in parts if part.ident != parts[0].ident)
    near = [part for part in parts if part.ident != other.ident]
    mine = next((part for part in reversed(near) if part.end <= found.start), near[0])
    if not metric or value.low <= 0:
        return "it does not say what is compared" if value.low > 0 else f"{value.written} less leaves nothing"
    worse = _has(r"\b(?:trail\w*|behind|slower|cheaper|less)\b", line.around(found, 30, 20))
    value = value.inverse() if worse and found.amount.unit == "times" else value
    sides = _setup(line, mine, found.start), _setup(line, other, found.start)
    return replace(base, kind="ratio", quantity=metric, amount=value, basis=kind, setup=sides[0], over=sides[1])


def _as_ratio(line: _Line, found: _Found) -> Amount:
    """Return a share as a ratio: 30% more is 1.3, 30% less 0.7, and within 10% is 0.9 to 1.1."""
    amount, before, after = found.amount, line.before(found), line.after(found, 30)
    if amount.unit == "times" or (amount.low > 1 and re.match(r"\s*of\b", after)):
        return replace(amount, unit="times")
    if _has(r"within\s*$", before):
        return replace(amount, unit="times", low=1 - amount.high, high=1 + amount.high, at_most=False)
    less = _has(_LESS, after) or (_has(_LESS, before) and not _has("more|faster|higher|increase", after))
    low, high = (1 - amount.high, 1 - amount.low) if less else (1 + amount.low, 1 + amount.high)
    slack = max(amount.slack_fraction * amount.middle, 0.01) / max((low + high) / 2, 0.05)
    least, most = (amount.at_most, amount.at_least) if less else (amount.at_least, amount.at_most)
    slack = max(slack, 0.05 if amount.slack_fraction > 0.05 else 0.0)
    return replace(amount, unit="times", low=low, high=high, slack_fraction=slack, at_least=least, at_most=most)


def _metric(line: _Line, found: _Found, units: set[str]) -> str:
    """Return what a ratio compares: the nearest word that names a quantity, where words behind the figure win."""
    if _has(r"comput\w+\s+(?:about |~)?$", line.before(found)):
        return "flops"
    best, chosen = 1e9, ""
    for name, pattern in _METRICS.items():
        for match in re.finditer(pattern, line.plain, re.IGNORECASE):
            behind = match.start() >= found.end
            distance = match.start() - found.end if behind else 1.5 * (found.start - match.end()) + 5
            if distance < best - (name == "rate"):
                best, chosen = distance, name
    if chosen in {"rate", "price"} and _has(_PER_DOLLAR, line.plain):
        return "per_dollar"
    return "memory" if "bytes" in units and (not chosen or (chosen == "rate" and "increase" in line.plain)) else chosen


def _price_kind(line: _Line) -> str:
    """Return the kind of rent that a line names, `rent`, `purchase` or ""."""
    return next((name for name, pattern in _KINDS.items() if _has(pattern, line.text)), "")


def _price(line: _Line, found: _Found, base: Claim) -> Claim | str:
    amount, setup, year = found.amount, base.setup, re.search(r"\b(20[12]\d)\b", line.plain)
    told = replace(base, kind="price", provider=_provider(line.text), year=int(year[1]) if year else None)
    if setup.accelerator is None or (amount.unit == "usd/Mtok" and setup.model is None):
        return "it names no accelerator or no model for this price"
    if amount.unit == "usd/Mtok":
        return replace(told, kind="cost", basis=_token_basis(line, found))
    if amount.unit == "usd" and _has(r"billion|million|[$]\d[\d.]*[bm]\b|revenue|engineer", line.plain):
        return "the amount is no price of an accelerator"
    if amount.unit == "usd":
        return replace(told, basis="purchase")
    devices = 1 if _has(r"gpu-?\s?h|per gpu|/gpu", line.text) else setup.devices
    kind = _price_kind(line)
    return replace(told, amount=amount.scaled(1 / devices), basis=kind if kind.startswith("rent") else "rent")


@cache
def _providers() -> "re.Pattern[str]":
    named = {seller_of(price) for ident in priced_ids() for price in load_prices(ident) if price.hourly}
    names = {re.sub(r" ?\(.*|[^a-z ].*", "", name.lower()) for name in named} - {"derived", "market range"}
    usual = sorted((name for name in {*names, "oracle", "google"} if len(name) > 2), key=len, reverse=True)
    return re.compile(rf"(?i)(?<![\w-])({'|'.join(map(re.escape, usual))})(?![\w-])")


def _provider(text: str) -> str:
    found = _providers().search(text)
    name = found[1].lower() if found else ""
    return {"oracle": "oracle oci", "google": "gcp", "oci": "oracle oci"}.get(name, name)


def _token_basis(line: _Line, found: _Found) -> str:
    near = line.plain[max(0, found.start - 25) : found.end + 25]
    total = _has(r"\b(?:total|in ?\+ ?out|input and output)\b", near)
    return "total" if total else "output" if _has(r"\boutput\b", near) else ""


def _speed(line: _Line, found: _Found, base: Claim) -> Claim | str:
    unknown = next((one.text for one in line.models if one.ident is None), None)
    if base.setup.model is None or base.setup.accelerator is None:
        missing = "model" if base.setup.model is None else "accelerator"
        return f"{unknown} is not in the catalog" if unknown else f"it names no {missing} for this figure"
    if found.amount.unit != "s":
        return replace(base, kind="rate", basis=_token_basis(line, found))
    if _has("first token|ttft", line.plain):
        return replace(base, kind="ttft")
    if _has(r"per (?:output )?token|a token|tpot|inter-?token|\bitl\b|:", line.plain):
        return replace(base, kind="tpot")
    return "it does not say whether the time is per token or to the first token"


def _fits(line: _Line, base: Claim) -> Iterator[Claim]:
    """Yield the claim that a model fits, does not fit, or needs at least so many devices, if the line says so."""
    said = re.search(_FITS, line.plain, re.IGNORECASE)
    named = any(one.ident for one in line.models)
    parts = [part for part in line.parts if part.ident]
    fewest = [part for part in parts if part.devices and _has(_FEWEST, line.text[: part.start])]
    if named and (fewest or (said and parts)):
        part = next((one for one in parts if said and one.start >= said.end()), None) or (fewest or parts)[-1]
        basis = "no" if said and said["no"] else "least" if part in fewest else ""
        yield replace(base, kind="fits", setup=_setup(line, part, part.start), basis=basis)
    elif said:
        yield replace(base, why=f"it names no {'accelerator' if named else 'model'} that the catalog knows")
