"""Does an endpoint serve the model the fleet file gives it? By the name on its page, then by the list it keeps."""

import json
import logging
from typing import Final

log = logging.getLogger(__name__)
_AGAIN_S: Final = 5.0
"""Between two looks at the list of an endpoint whose page says another name."""
_SHOWN: Final = 3


class ServedModel:
    """What is known of one endpoint's model.

    Requests are passed on with the name they came with. A page has only the first of an engine's names
    (`--served-model-name`), so that another name there is no proof: the list at /v1/models has all of them. An engine
    that does not look at names (SGLang) serves another model only where the list has a name that is another's here.
    """

    def __init__(self, address: str, model: str, names: frozenset[str], *, checks_names: bool) -> None:
        self._address, self._model, self._names, self._checks_names = address, model, names, checks_names
        self._asked_s = 0.0
        self._said: frozenset[str] | None = None
        self.other = False
        """Whether it serves another."""

    def doubted(self, models: frozenset[str], now_s: float) -> bool:
        """Whether its list is to be asked for, because its page names others and not the one that is expected."""
        if not models or self._model in models:
            if self.other:
                log.warning("%s serves %s again", self._address, self._model)
            self.other, self._said = False, None
            return False
        return now_s - self._asked_s >= _AGAIN_S

    def listed(self, page: bytes, now_s: float) -> None:
        """Take its list; one that cannot be read changes nothing."""
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
