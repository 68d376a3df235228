"""Tells pickers of first and last tokens when clients see them, which is a little after the engine's step.

A gateway sees a token when the client does: after the server has detokenized and sent it. Until then the picker
counts the prompt as not computed. Tokens that pickers do not know yet are in a heap, and are passed on before a picker
is asked.
"""

from penstock.compiled.marks import compiled
from penstock.routing.endpoint_updates import finished, first_token
from penstock.routing.length_estimates import saw_answer
from penstock.simulation.loop.observe import client_lag_s
from penstock.simulation.loop.world import World

_FIRST, _LAST = 0, 1


@compiled
def note_first_token(w: World, r: int, number: int) -> None:
    """Note that the first token of a request was generated."""
    if w.control[0].routed:
        _add(w, w.rows[number & (len(w.rows) - 1)].first_s + client_lag_s(w, r, number), 2 * number + _FIRST)


@compiled
def note_finished(w: World, r: int, number: int) -> None:
    """Note that the last token of a request was generated."""
    if w.control[0].routed:
        _add(w, w.rows[number & (len(w.rows) - 1)].last_s + client_lag_s(w, r, number), 2 * number + _LAST)


@compiled
def tell_pickers(w: World, until_s: float) -> None:
    """Tell pickers of the tokens that clients have seen until then."""
    while w.control[0].unseen > 0 and w.unseen[0]["at_s"] <= until_s:
        _tell_next(w)


@compiled
def _is_before(w: World, place: int, at_s: float, token: int) -> bool:
    one = w.unseen[place]
    return bool(one["at_s"] < at_s or (one["at_s"] == at_s and one["token"] < token))


@compiled
def _put(w: World, place: int, at_s: float, token: int) -> None:
    w.unseen[place]["at_s"], w.unseen[place]["token"] = at_s, token


@compiled
def _add(w: World, at_s: float, token: int) -> None:
    """Add a token to the heap. If the heap is full, the token that is due first is passed on early."""
    if w.control[0].unseen == len(w.unseen):
        _tell_next(w)
    place = w.control[0].unseen
    w.control[0].unseen += 1
    while place > 0 and not _is_before(w, (place - 1) >> 1, at_s, token):
        above = w.unseen[(place - 1) >> 1]
        _put(w, place, above["at_s"], above["token"])
        place = (place - 1) >> 1
    _put(w, place, at_s, token)


@compiled
def _tell_next(w: World) -> None:
    """Remove the token that is due first from the heap, and tell the picker of its request."""
    at_s, token = w.unseen[0]["at_s"], w.unseen[0]["token"]
    w.control[0].unseen -= 1
    left, place, child = w.control[0].unseen, 0, 1
    last_s, last = w.unseen[left]["at_s"], w.unseen[left]["token"]
    while child < left:
        if child + 1 < left and _is_before(w, child + 1, w.unseen[child]["at_s"], w.unseen[child]["token"]):
            child += 1
        if not _is_before(w, child, last_s, last):
            break
        _put(w, place, w.unseen[child]["at_s"], w.unseen[child]["token"])
        place, child = child, 2 * child + 1
    _put(w, place, last_s, last)
    place = (token >> 1) & (len(w.rows) - 1)
    row = w.rows[place]
    if token & 1 == _FIRST:
        first_token(w.endpoints[row.picker], w.flights, place, at_s, w.parameters[row.picker])
        return
    finished(w.endpoints[row.picker], w.flights, place, row.output_tokens, at_s, w.parameters[row.picker])
    saw_answer(w.lengths, min(row.slo_class, len(w.promises) - 1), row.input_tokens, row.output_tokens)
