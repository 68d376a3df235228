"""Sentences about flips: the value of an input at which another fleet becomes cheaper."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.planning.optimizer.competing_fleets import NOTHING
from penstock.planning.uncertainty.sensitivity import Flip
from penstock.report.plan.sentences import amount, capital, engineers, label_name, plain_label, spread
from penstock.units import counted

_PEOPLE: Final = ("engineers", "engineers_by_size")


def turns(flips: Sequence[Flip]) -> list[tuple[Flip, ...]]:
    """Group flips by input, in the given order of inputs; within a group the lower value comes first."""
    found: dict[str, list[Flip]] = {}
    for flip in flips:
        found.setdefault(flip.id, []).append(flip)
    return [tuple(sorted(ends, key=lambda flip: flip.at)) for ends in found.values()]


def within_reach(ends: Sequence[Flip]) -> bool:
    """Return whether the input's range contains a value that changes the answer."""
    return any(flip.within_range for flip in ends)


def flip_sentence(*ends: Flip) -> str:
    """State the value of an input at which the answer changes, or the two values between which it holds."""
    flip, last = ends[0], ends[-1]
    inside = (", within its range" if within_reach(ends) else "") + _not_solved(ends)
    winner, now = capital(label_name(flip.winner)), f"(now {_plain(flip.current, flip)}{inside})"
    if flip is last:
        return f"{winner} stops winning {_flip_condition(flip)} {now}: then {_fleet(flip)}{_again(ends)}"
    only = "" if any(end.returns for end in ends) else "only "
    return f"{winner} wins {only}{_between(flip, last)} {now}: {_instead(*map(_fleet, ends))}{_again(ends)}"


def _again(ends: Sequence[Flip]) -> str:
    """Add that the winner is cheapest again farther away; this happens because nodes are whole."""
    return " at first, farther on it wins again" if any(end.returns for end in ends) else ""


def _fleet(flip: Flip) -> str:
    """Name the fleet that is cheapest beyond the flip."""
    return "nothing is enough" if flip.instead == NOTHING else label_name(flip.instead)


def cheaper_then(flip: Flip, names: Mapping[str, str]) -> str:
    """Name the fleet that is cheaper beyond the flip, with vendors' product names."""
    return "nothing is enough" if flip.instead == NOTHING else f"{plain_label(flip.instead_named, names)} is cheaper"


def _again_plainly(ends: Sequence[Flip]) -> str:
    return " at first; farther on it is as planned again" if any(end.returns for end in ends) else ""


def _not_solved(ends: Sequence[Flip]) -> str:
    """Mark a flip that was located among the compared fleets only, without solving again."""
    return "" if all(flip.solved for flip in ends) else ", of these fleets alone"


def _instead(below: str, above: str) -> str:
    return f"else {below}" if below == above else f"below {below}, above {above}"


def _between(low: Flip, high: Flip, subject: str | None = None) -> str:
    subject, both = subject or low.subject, spread(low.at, high.at, low.unit)
    if low.kind in _PEOPLE:
        return f"with {_plain(low.at, low)} to {_plain(high.at, high)} {_people(low)}"
    verb = {"price": "costs", "rent": f"rents {_term(low)} at", "throughput": "delivers", "delivery": "comes"}.get(
        low.kind
    )
    return f"while the {subject} is {both}" if verb is None else f"while {subject} {verb} {both}"


def plain_flip(ends: Sequence[Flip], names: Mapping[str, str]) -> str:
    """Write a flip for budget owners."""
    flip, last = ends[0], ends[-1]
    subject, now, rough = names.get(flip.subject, flip.subject), _plain(flip.current, flip), _not_solved(ends)
    if flip is not last:
        condition = _between(flip, last, subject)
        instead = _instead(*(cheaper_then(end, names) for end in ends)) + _again_plainly(ends)
        return f"{condition[:1].upper()}{condition[1:]} it stays so (planned: {now}{rough}), {instead}."
    if flip.kind in _PEOPLE:
        few = "fewer" if flip.side == "below" else "more"
        condition = f"with {few} than {_plain(flip.at, flip)} {_people(flip)}"
    elif flip.kind == "throughput":
        less = "less" if flip.side == "below" else "more"
        condition, now = f"if {subject} serves {less} than {flip.at:.0%} of what is estimated", "100%"
    else:
        condition = _flip_condition(flip, subject)
    instead = cheaper_then(flip, names) + _again_plainly(ends)
    return f"{condition[:1].upper()}{condition[1:]}, {instead} (planned: {now}{rough})."


def _term(flip: Flip) -> str:
    """Return the rental term in words."""
    return "by the hour" if flip.months is None else f"for {counted(flip.months, 'month')}"


def _flip_condition(flip: Flip, subject: str | None = None) -> str:
    at, below = _plain(flip.at, flip), flip.side == "below"
    subject = subject or flip.subject
    if flip.kind in _PEOPLE:
        return f"{flip.side} {at} {_people(flip)}"
    if flip.kind == "price":
        return f"if {subject} costs {'less' if below else 'more'} than {at}"
    if flip.kind == "rent":
        return f"if {subject} rents {_term(flip)} {flip.side} {at}"
    if flip.kind == "throughput":
        return f"if {subject} delivers {'less' if below else 'more'} than {at}"
    if flip.kind == "delivery":
        return f"if {subject} comes {'earlier' if below else 'later'} than {at} from the start"
    return f"if the {subject} is {flip.side} {at}"


def _plain(value: float, flip: Flip) -> str:
    return engineers(value) if flip.kind in _PEOPLE else amount(value, flip.unit)


def _people(flip: Flip) -> str:
    return f"extra {label_name(flip.subject)} engineers" + (
        " per 1,000 devices" if flip.kind == "engineers_by_size" else ""
    )
