"""How is Envoy answered over ext_authz? One HTTP/1.1 request in, headers with addresses or a refusal out."""

import json
import math
from typing import Final

from penstock.gateway.picking.asked import BadBody, read_body
from penstock.gateway.picking.desk import Desk, Named, Refused, Wish
from penstock.gateway.state.headers import (
    DESTINATION,
    LENGTH,
    MODEL,
    OBJECTIVE,
    PICKER,
    REASON,
    TENANT,
    TICKET,
    TPOT_MS,
    TRY_TIMEOUT,
    TTFT_MS,
)
from penstock.serving import Exchange

_PARTIAL: Final = b"x-envoy-auth-partial-body"
_LONGEST_WISH_MS: Final = 1e7
_MOST_NAME: Final = 128


_LENGTH: Final = LENGTH.encode()
_WISHES: Final = frozenset(name.encode() for name in (*OBJECTIVE, *TENANT, *TTFT_MS, *TPOT_MS))
_NO_WISH: Final = Wish()
_LONGEST_LENGTH: Final = 11
"""Digits of a body's length that can be meant."""


class AuthzDoor:
    """Envoy's question as plain HTTP."""

    def __init__(self, desk: Desk, number: int) -> None:
        self.desk = desk
        self._number = number

    def handle(self, exchange: Exchange) -> None:
        """Answer 200 with a destination, or what the client is to be told."""
        answer = self._decide(exchange)
        if isinstance(answer, Refused):
            again = "" if answer.retry_s is None else f"retry-after: {answer.retry_s}\r\n"
            exchange.reply(answer.status, refusal_body(answer), more=f"{REASON}: {answer.reason}\r\n{again}".encode())
            return
        headers = f"{MODEL}: {answer.model}\r\n"
        if answer.order:
            addresses = self.desk.fleet.addresses
            headers += (
                f"{DESTINATION}: {','.join([addresses[index] for index in answer.order])}\r\n"
                f"{TICKET}: {answer.ticket}\r\n{PICKER}: {self._number}\r\n"
                f"{TRY_TIMEOUT}: {int(1000 * answer.try_s)}\r\n"
            )
        exchange.reply(200, b"", more=headers.encode())

    def _decide(self, exchange: Exchange) -> Named | Refused:
        headers, body = exchange.headers, exchange.body
        if exchange.method != b"POST":
            return Named(self.desk.fleet.models[0])
        said = headers.get(_LENGTH, b"")
        whole = int(said) if said.isdigit() and len(said) <= _LONGEST_LENGTH else len(body)
        try:
            asked = read_body(body, whole, cut=headers.get(_PARTIAL) == b"true")
        except BadBody as error:
            return Refused(400, "bad-body", str(error))
        return self.desk.decide(asked, body, wish_of(headers))


def wish_of(headers: dict[bytes, bytes]) -> Wish:
    """Read how a request wants to be treated; what cannot be meant is not heard."""
    if _WISHES.isdisjoint(headers):
        return _NO_WISH
    return Wish(
        objective=_first(headers, OBJECTIVE).lower(),
        tenant=_first(headers, TENANT),
        ttft_s=_seconds(_first(headers, TTFT_MS)),
        tpot_s=_seconds(_first(headers, TPOT_MS)),
    )


def _first(headers: dict[bytes, bytes], names: tuple[str, ...]) -> str:
    for name in names:
        value = headers.get(name.encode())
        if value is not None:
            return value[:_MOST_NAME].decode("latin-1")
    return ""


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and 0 < value < _LONGEST_WISH_MS else None


def refusal_body(refused: Refused) -> bytes:
    """Write a refusal as OpenAI's clients read it."""
    error = {"message": refused.message, "type": refused.reason, "param": None, "code": refused.status}
    return json.dumps({"error": error}).encode()
