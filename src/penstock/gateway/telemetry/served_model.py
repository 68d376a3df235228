"""Checks that an endpoint serves the model that the fleet file assigns to it.

The check reads the model names on the endpoint's metrics page. If the expected name is missing on the metrics page, the
check reads /v1/models.
"""

import json
import logging
from typing import Final

log = logging.getLogger(__name__)
_RECHECK_S: Final = 5.0
"""Seconds between two requests for /v1/models to an endpoint whose metrics page lacks the expected model name."""
_MAX_LISTED: Final = 3


class ServedModel:
    """Checker of the model that one endpoint serves.

    The gateway does not change the model name of a request. A metrics page has only the first name of a model
    (`--served-model-name`), so a different name on this page proves nothing. /v1/models lists all names. SGLang ignores
    the model name of a request. An SGLang endpoint counts as serving another model only if its list names another model
    or adapter of this fleet.
    """

    def __init__(self, address: str, model: str, names: frozenset[str], *, checks_names: bool) -> None:
        self._address, self._model, self._names, self._checks_names = address, model, names, checks_names
        self._listed_s = 0.0
        self._reported: frozenset[str] | None = None
        self.other = False
        """True if the endpoint serves a model other than the expected model."""

    def needs_check(self, models: frozenset[str], now_s: float) -> bool:
        """Return whether to fetch the endpoint's model list now.

        `models` are the names on the metrics page. The model list is needed if the page has names, but not the expected
        name.
        """
        if not models or self._model in models:
            if self.other:
                log.warning("%s serves %s again", self._address, self._model)
            self.other, self._reported = False, None
            return False
        return now_s - self._listed_s >= _RECHECK_S

    def apply_list(self, page: bytes, now_s: float) -> None:
        """Update `other` from the endpoint's response to /v1/models. An unreadable response changes nothing."""
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
            log.warning(
                "%s serves %s, not %s; it gets requests only if no other is up",
                self._address,
                listing,
                self._model,
            )
