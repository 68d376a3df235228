"""Makes the folder of a gateway's tables where there is room, and removes the folders of gateways that were killed.

A gateway holds a lock in its folder. Process ids would not do: another container may share the memory, but not the ids.
"""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import UsageError

log = logging.getLogger(__name__)
_PREFIX: Final = "penstock-"
_LOCK: Final = "lock"
_SPARE_BYTES: Final = 2**20
"""Room for the files of Envoy's configuration."""
_MB: Final = 10**6


@contextmanager
def gateway_folder(needed_bytes: int) -> Iterator[Path]:
    """Make a folder in memory, or where temporary files are, and remove it at the end."""
    places = _places()
    for place in places:
        remove_leftovers(place)
    with tempfile.TemporaryDirectory(
        prefix=_PREFIX, dir=_place_with(places, needed_bytes), ignore_cleanup_errors=True
    ) as name:
        descriptor = _lock(Path(name))
        try:
            yield Path(name)
        finally:
            os.close(descriptor)


def remove_leftovers(place: Path) -> None:
    """Remove the folders of gateways that were killed, because these folders hold keys of clients and engines."""
    for lock in place.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue  # its gateway runs
        finally:
            os.close(descriptor)


def _lock(folder: Path) -> int:
    """Lock a folder. The lock file gets its name when it is locked, so that it is never seen unlocked."""
    made = folder / f"{_LOCK}.new"
    descriptor = os.open(made, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    made.rename(folder / _LOCK)
    return descriptor


def _places() -> list[Path]:
    """Return the folder in memory (tmpfs), if the machine has one, and the folder of temporary files."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    return [place for place in (memory, Path(tempfile.gettempdir())) if os.access(place, os.W_OK)]


def _place_with(places: Sequence[Path], needed_bytes: int) -> Path:
    """Return the first place with enough room. A table without room would end Envoy by SIGBUS."""
    needed = needed_bytes + _SPARE_BYTES
    free = {place: shutil.disk_usage(place).free for place in places}
    said = ", ".join(f"{place} has {size / _MB:.1f} MB free" for place, size in free.items())
    chosen = next((place for place, size in free.items() if size >= needed), None)
    if chosen is None:
        raise UsageError(
            f"the gateway's tables need {needed / _MB:.1f} MB, and {said}; free some, set TMPDIR, or lower --workers"
        )
    if chosen != places[0]:
        log.warning("the gateway's tables need %.1f MB, so they are in %s: %s", needed / _MB, chosen, said)
    return chosen
