"""Does a gateway that runs for long stay as it was? Mixed load for some minutes, and what its processes hold by then.

Whole and streamed answers, clients that leave, endpoints that die and come back, reloads of the fleet; every few
seconds memory and open files, connections among them, of Envoy, the picker, the scraper and the supervisor are noted.
"""

import argparse
import asyncio
import itertools
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from gateway_stack import Running, chat, running

_EVERY_S: Final = 5.0
_WARM_FRACTION: Final = 0.25
"""Of the time, before which nothing is compared: pools, caches and allocators fill first."""
_GROWTH_MB: Final = 8.0
_GROWTH_FILES: Final = 4.0
_AT_ONCE: Final = 8
_FAULT_EVERY_S: Final = 7.0


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds."""

    memory_mb: float
    files: int


def held(pid: int) -> Held:
    """Resident memory, and open files, sockets among them.

    What a picker shares with the supervisor it was copied from is in both: that they come to differ is no growth.
    """
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    resident_kb = sum(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return Held(resident_kb / 1024, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))


def parts(stack: Running) -> dict[str, int]:
    """Process ids of the gateway by what they are."""
    found = {"supervisor": stack.processes["gateway"].pid}
    for name in ("envoy", "picker", "scraper"):
        for number, pid in enumerate(stack.children(name)):
            found[f"{name} {number}" if number else name] = pid
    return found


async def clients(stack: Running, until_s: float, seen: Counter[str], rng: random.Random) -> None:
    """Ask until the time is over: whole, streamed, long, and now and then without waiting for the end."""
    while time.monotonic() < until_s:
        stream = rng.random() < 0.5
        prompt = "x" * rng.choice([20, 400, 4_000, 100_000])
        body = chat(rng.randrange(1, 40), stream=stream, prompt=prompt)
        if rng.random() < 0.05:
            reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await asyncio.wait([asyncio.ensure_future(reader.read(100))], timeout=0.05)
            writer.transport.abort()
            seen["left"] += 1
            continue
        status, _ = await stack.ask(body)
        seen[str(status) if status else "cut"] += 1


async def troubles(stack: Running, until_s: float) -> None:
    """Let one endpoint die or refuse for a while, and read the fleet again."""
    watched, addresses = Path(str(stack.stack.watched)), list(stack.stack.addresses)
    for number in itertools.count():
        begun_s = time.monotonic()
        if begun_s > until_s - 2 * _FAULT_EVERY_S:
            return
        await asyncio.to_thread(stack.fault, ("die", "refuse", "slow")[number % 3], number % len(addresses), 3.0)
        await asyncio.sleep(_FAULT_EVERY_S / 2)
        await asyncio.to_thread(stack.fault, "none", number % len(addresses))
        await asyncio.to_thread(watched.write_text, json.dumps(addresses), encoding="utf-8")
        await asyncio.sleep(_FAULT_EVERY_S / 2)


def sizes(folder: Path) -> list[int]:
    """Return the sizes of the files of a folder, without those that a reload removes meanwhile."""
    found = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            found.append(path.stat().st_size)
    return found


async def watch(stack: Running, until_s: float, rows: list[dict[str, Held]]) -> None:
    """Write down what the processes hold, and the folder they share."""
    folder = Path(stack.stack.folder)
    while time.monotonic() < until_s:
        row = {name: held(pid) for name, pid in parts(stack).items()}
        tables = sizes(folder)
        rows.append({**row, "tables": Held(sum(tables) / 2**20, len(tables))})
        await asyncio.sleep(_EVERY_S)


async def soak(stack: Running, seconds: float) -> tuple[Counter[str], list[dict[str, Held]]]:
    """Run the load, the troubles and the watch side by side."""
    until_s, seen, rows = time.monotonic() + seconds, Counter[str](), list[dict[str, Held]]()
    asking = (clients(stack, until_s, seen, random.Random(number)) for number in range(_AT_ONCE))  # noqa: S311 - a load
    await asyncio.gather(*asking, troubles(stack, until_s), watch(stack, until_s, rows))
    return seen, rows


def slope(values: list[float]) -> float:
    """How much the last third is above the first third of what is compared: medians, so that one peak is nothing."""
    third = max(1, len(values) // 3)
    first, last = sorted(values[:third]), sorted(values[-third:])
    return last[len(last) // 2] - first[len(first) // 2]


def judged(rows: list[dict[str, Held]]) -> tuple[list[str], bool]:
    """Lines of a table, and whether nothing grew."""
    settled, flat = rows[int(len(rows) * _WARM_FRACTION) :], True
    lines = ["| process | memory at first, MB | at the end | growth | files at first | at the end | growth |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in settled[0]:
        memory = [row[name].memory_mb for row in settled if name in row]
        files = [float(row[name].files) for row in settled if name in row]
        grown_mb, grown_files = slope(memory), slope(files)
        flat = flat and grown_mb < _GROWTH_MB and grown_files < _GROWTH_FILES
        lines.append(
            f"| {name} | {memory[0]:.1f} | {memory[-1]:.1f} | {grown_mb:+.1f}"
            f" | {files[0]:.0f} | {files[-1]:.0f} | {grown_files:+.0f} |"
        )
    return lines, flat


def main() -> None:
    """Soak, and say what grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--protocol", default="module")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as name:
        folder = Path(name)
        with running(
            folder,
            endpoints=4,
            protocol=asked.protocol,
            watched=str(folder / "fleet.json"),
            own_log=str(folder / "own.log"),
        ) as stack:
            before = parts(stack)
            seen, rows = asyncio.run(soak(stack, asked.minutes * 60))
            lines, flat = judged(rows)
            same = parts(stack) == before
    print(
        f"{asked.protocol}, {asked.minutes:g} minutes: " + ", ".join(f"{count} {what}" for what, count in seen.items())
    )
    print("\n".join(lines))
    if not same:
        print("a process had to be started again")
    if not flat:
        print(f"something grew by more than {_GROWTH_MB:g} MB or {_GROWTH_FILES:g} files")
    sys.exit(0 if flat and same else 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
