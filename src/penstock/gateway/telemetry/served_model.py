"""Checks that an endpoint serves the model that the fleet file says, by its metrics page and then by /v1/models."""

import json
import logging
from typing import Final

log = logging.getLogger(__name__)
_RECHECK_S: Final = 5.0
"""Interval, in seconds, of requests for the model list of an endpoint whose metrics page names an unexpected model."""
_MAX_LISTED: Final = 3


class ServedModel:
    """Checker of the model that one endpoint serves.

    The gateway does not change the model name of a request. A metrics page has only the first of an engine's names
    (`--served-model-name`), so a different name there proves nothing. /v1/models lists all names. An engine that
    ignores names (SGLang) counts as serving another model only if its list has the name of another model of this fleet.
    """

    def __init__(self, address: str, model: str, names: frozenset[str], *, checks_names: bool) -> None:
        self._address, self._model, self._names, self._checks_names = address, model, names, checks_names
        self._listed_s = 0.0
        self._reported: frozenset[str] | None = None
        self.other = False
        """True if the endpoint serves another model."""

    def needs_check(self, models: frozenset[str], now_s: float) -> bool:
        """Return whether to fetch the endpoint's model list: its metrics page has names, but not the expected one."""
        if not models or self._model in models:
            if self.other:
                log.warning("%s serves %s again", self._address, self._model)
            self.other, self._reported = False, None
            return False
        return now_s - self._listed_s >= _RECHECK_S

    def apply_list(self, page: bytes, now_s: float) -> None:
        """Apply the endpoint's model list. An unreadable list changes nothing."""
        self._listed_s = now_s
        try:
            names = frozenset(str(card["id"]) for card in json.loads(page)["data"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        missing = bool(names) and self._model not in names
        self.other = missing and (self._checks_names or not self._names.isdisjoint(names))
        if self.other and self._reported != names:
            self._reported = names
            listing = ", ".join(name[:100] for name in sorted(names)[:_MAX_LISTED])
            log.warning("%s serves %s, not %s; it gets no requests", self._address, listing, self._model)
