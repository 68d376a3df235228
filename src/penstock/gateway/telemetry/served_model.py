"""Checks that an endpoint serves its model from the fleet file: by its metrics page, then by /v1/models."""

import json
import logging
from typing import Final

log = logging.getLogger(__name__)
_AGAIN_S: Final = 5.0
"""Seconds between two requests for the model list of an endpoint whose page has another name."""
_SHOWN: Final = 3


class ServedModel:
    """Which model one endpoint serves.

    Requests keep the model name they came with. A metrics page has only the first of an engine's names
    (`--served-model-name`), so a different name there proves nothing: /v1/models lists all of them. An engine that
    ignores names (SGLang) counts as serving another model only if its list has the name of another model of this fleet.
    """

    def __init__(self, address: str, model: str, names: frozenset[str], *, checks_names: bool) -> None:
        self._address, self._model, self._names, self._checks_names = address, model, names, checks_names
        self._asked_s = 0.0
        self._said: frozenset[str] | None = None
        self.other = False
        """True if the endpoint serves another model."""

    def doubted(self, models: frozenset[str], now_s: float) -> bool:
        """Return whether to fetch the model list, because the page has only other names than the expected one."""
        if not models or self._model in models:
            if self.other:
                log.warning("%s serves %s again", self._address, self._model)
            self.other, self._said = False, None
            return False
        return now_s - self._asked_s >= _AGAIN_S

    def listed(self, page: bytes, now_s: float) -> None:
        """Apply the endpoint's model list. An unreadable list changes nothing."""
        self._asked_s = now_s
        try:
            listed = frozenset(str(card["id"]) for card in json.loads(page)["data"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        missing = bool(listed) and self._model not in listed
        self.other = missing and (self._checks_names or not self._names.isdisjoint(listed))
        if self.other and self._said != listed:
            self._said = listed
            shown = ", ".join(name[:100] for name in sorted(listed)[:_SHOWN])
            log.warning("%s serves %s, not %s; it gets no requests", self._address, shown, self._model)
