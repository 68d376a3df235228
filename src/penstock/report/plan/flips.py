"""Writes sentences about flips. A flip is a value of an input at which another fleet becomes cheaper."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.planning.optimizer.competing_fleets import NOTHING
from penstock.planning.uncertainty.sensitivity import Flip
from penstock.report.plan.plan_amounts import amount, engineers, number, spread
from penstock.report.plan.sentences import capital, label_name, plain_label
from penstock.units import count_text

_MULTIPLE: Final = "x stated"
_PEOPLE: Final = ("engineers", "engineers_by_size")


def flips_by_input(flips: Sequence[Flip]) -> list[tuple[Flip, ...]]:
    """Group flips by input.

    Groups are in the order in which their inputs first occur. Within a group, the flips (input
    values at which the recommended fleet changes) are listed in ascending order.
    """
    found: dict[str, list[Flip]] = {}
    for flip in flips:
        found.setdefault(flip.id, []).append(flip)
    return [tuple(sorted(ends, key=lambda flip: flip.at)) for ends in found.values()]


def within_range(ends: Sequence[Flip]) -> bool:
    """Return whether the input's range contains a value that changes the answer."""
    return any(flip.within_range for flip in ends)


def flip_sentence(*ends: Flip) -> str:
    """State the value of an input at which the answer of the plan changes.

    If there are two such values, state that the answer holds between them.
    """
    flip, last = ends[0], ends[-1]
    inside = _range_remark(ends) + _not_solved(ends)
    assumed = f"(assumed {_figure(flip.current, flip)}{inside})"
    if flip is last:
        it = "it" if flip.kind in _PEOPLE and flip.instead == flip.subject else None
        other = capital(plain_label(flip.instead_named, {}))
        cheaper = "No fleet meets demand" if flip.instead == NOTHING else f"{other} is cheaper"
        return f"{cheaper} {_flip_condition(flip, it)} {assumed}{_again(ends)}"
    winner, only = capital(label_name(flip.winner)), "" if any(end.returns for end in ends) else "only "
    instead = _instead(*(cheaper_then(end, {}) for end in ends))
    return f"{winner} is cheapest {only}{_between(flip, last)} {assumed}; {instead}{_again(ends)}"


def _range_remark(ends: Sequence[Flip]) -> str:
    """Say whether a flip lies within the range of its input; an input without a range has no remark."""
    if within_range(ends):
        return "; within its range"
    return "; outside its range" if ends[0].uncertainty_fraction else ""


def _again(ends: Sequence[Flip]) -> str:
    """Return a phrase that says that the winner is cheapest again at values farther beyond the flip, or an empty text.

    A winner can become cheapest again because node counts are whole numbers.
    """
    if not any(end.returns for end in ends):
        return ""
    return f"; {_farther(ends)} {label_name(ends[0].winner)} is cheapest again"


def _farther(ends: Sequence[Flip]) -> str:
    """Say on which side of the flips the winner is cheapest again."""
    sides = {end.side for end in ends if end.returns}
    return "farther away" if len(sides) > 1 or len(ends) == 1 else f"far {sides.pop()} that,"


def cheaper_then(flip: Flip, names: Mapping[str, str]) -> str:
    """Name the fleet that becomes cheaper once the input passes its break-even value (the flip).

    `names` maps accelerators to product names.
    """
    if flip.instead == NOTHING:
        return "no fleet meets demand"
    return f"{plain_label(flip.instead_named, names)} is cheaper"


def _again_plainly(ends: Sequence[Flip]) -> str:
    returns = any(end.returns for end in ends)
    return f"; {_farther(ends)} the planned fleet is cheapest again" if returns else ""


def _not_solved(ends: Sequence[Flip]) -> str:
    """Return "; approximate" if the break-even value (the flip) is approximate, and an empty text otherwise.

    An approximate flip was found by comparing the known fleets only. The plan was not solved again at its value.
    """
    return "" if all(flip.solved for flip in ends) else "; approximate"


def _instead(below: str, above: str) -> str:
    return f"otherwise {below}" if below == above else f"below that {below}, above that {above}"


def _between(low: Flip, high: Flip, subject: str | None = None) -> str:
    subject, both = subject or low.subject, spread(low.at, high.at, low.unit)
    if low.kind in _PEOPLE:
        return f"with {_plain(low.at, low)} to {_plain(high.at, high)} {_engineers_of(low)}"
    verb = {"price": "costs", "rent": f"rents {_term(low)} at", "throughput": "delivers", "delivery": "comes"}.get(
        low.kind
    )
    return f"while the {subject} is {both}" if verb is None else f"while {subject} {verb} {both}"


def plain_flip(ends: Sequence[Flip], names: Mapping[str, str]) -> str:
    """Write a sentence for budget owners about the value of an input at which the answer changes (the flip)."""
    flip, last = ends[0], ends[-1]
    subject, now = names.get(flip.subject, flip.subject), _plain(flip.current, flip)
    if flip is not last:
        condition = _between(flip, last, subject)
        instead = _instead(*(cheaper_then(end, names) for end in ends)) + _again_plainly(ends)
        return f"{condition[:1].upper()}{condition[1:]} the choice holds{_note(now, ends)}; {instead}."
    if flip.kind in _PEOPLE:
        few = "fewer" if flip.side == "below" else "more"
        condition = f"with {few} than {_plain(flip.at, flip)} {_engineers_of(flip)}"
    elif flip.kind == "throughput":
        less = "less" if flip.side == "below" else "more"
        condition, now = f"if {subject} serves {less} than {flip.at:.0%} of its estimated load", "100%"
    else:
        condition = _flip_condition(flip, subject)
    instead = cheaper_then(flip, names) + _again_plainly(ends)
    return f"{condition[:1].upper()}{condition[1:]}, {instead}{_note(now, ends)}."


def _note(now: str, ends: Sequence[Flip]) -> str:
    """State the planned value in brackets, unless the flip is a multiple of it, and whether the flip is approximate."""
    notes = [] if ends[0].unit == _MULTIPLE else [f"planned: {now}"]
    notes += [] if within_range(ends) or not ends[0].uncertainty_fraction else ["outside its range"]
    notes += [] if all(flip.solved for flip in ends) else ["approximate"]
    return f" ({'; '.join(notes)})" if notes else ""


def _term(flip: Flip) -> str:
    """Return in words the rental term to which a break-even rent (the flip) applies."""
    return "by the hour" if flip.months is None else f"for {count_text(flip.months, 'month')}"


def _flip_condition(flip: Flip, subject: str | None = None) -> str:
    at, below = _plain(flip.at, flip), flip.side == "below"
    subject = subject or flip.subject
    if flip.kind in _PEOPLE:
        per = " per 1,000 devices" if flip.kind == "engineers_by_size" else ""
        few = "fewer" if below else "more"
        return (
            f"if {subject if subject == 'it' else label_name(flip.subject)} needs {few} than {at} extra engineers{per}"
        )
    if flip.kind == "price":
        return f"if {subject} costs {'less' if below else 'more'} than {at}"
    if flip.kind == "rent":
        return f"if {subject} rents {_term(flip)} {'for less' if below else 'for more'} than {at}"
    if flip.kind == "throughput":
        return f"if {subject} delivers {'less' if below else 'more'} than {at}"
    if flip.kind == "delivery":
        return f"if {subject} comes {'earlier' if below else 'later'} than {at} from the start"
    return f"if the {subject} is {flip.side} {at}"


def _plain(value: float, flip: Flip) -> str:
    return engineers(value) if flip.kind in _PEOPLE else amount(value, flip.unit)


def _figure(value: float, flip: Flip) -> str:
    return engineers(value) if flip.kind in _PEOPLE else number(value, flip.unit)


def _engineers_of(flip: Flip) -> str:
    return f"extra {label_name(flip.subject)} engineers" + (
        " per 1,000 devices" if flip.kind == "engineers_by_size" else ""
    )
