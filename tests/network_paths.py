"""Hosts of their own on one machine: network namespaces, and paths between them that are slow, lossy or cut.

A path is a pair of TUN devices with a process between them that carries packets, late or not at all: what `tc netem`
does where the kernel has it. Needs root, iproute2 and /dev/net/tun.
"""

import asyncio
import ctypes
import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Final, TypeVar

Result = TypeVar("Result")
IP: Final = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "ip"
_TUNSETIFF, _TUN_NO_HEADER, _NEW_NETWORK = 0x400454CA, 0x1001, 0x40000000
_MTU_BYTES: Final = 65_000


def refused() -> str | None:
    """Why this machine has no namespaces for us; None where it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "this machine has no /dev/net/tun"
    name = f"penstock-probe-{os.getpid()}"
    tried = subprocess.run([IP, "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"namespaces are refused: {tried.stderr.strip()}"
    subprocess.run([IP, "netns", "delete", name], check=True)
    return None


class NetworkPath:
    """A path between two hosts."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def become(self, *, delay_s: float = 0.0, loss_fraction: float = 0.0, cut: bool = False) -> None:
        """Be like this from now on."""
        told = json.dumps({"delay_s": delay_s, "loss_fraction": loss_fraction, "cut": cut})
        assert self._process.stdin is not None
        self._process.stdin.write(told.encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def hosts(*names: str) -> Iterator[tuple[str, ...]]:
    """Namespaces with loopback up, by names of this process."""
    made = tuple(f"penstock-{name}-{os.getpid()}" for name in names)
    with ExitStack() as held:
        for name in made:
            subprocess.run([IP, "netns", "add", name], check=True)
            held.callback(subprocess.run, [IP, "netns", "delete", name], check=True)
            inside(name, IP, "link", "set", "lo", "up")
        yield made


def inside(host: str, *command: str) -> None:
    subprocess.run([IP, "netns", "exec", host, *command], check=True)


@contextmanager
def path(number: int, one: str, other: str) -> Iterator[NetworkPath]:
    """Join two hosts as 10.217.NUMBER.1 and .2."""
    devices = [f"pen{number}{end}{os.getpid() % 10**6}" for end in "ab"]
    process = subprocess.Popen([sys.executable, __file__, *devices], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for place, (device, host) in enumerate(zip(devices, (one, other), strict=True), 1):
            subprocess.run([IP, "link", "set", device, "netns", host], check=True)
            inside(host, IP, "link", "set", device, "mtu", str(_MTU_BYTES), "up")
            mine, peer = f"10.217.{number}.{place}", f"10.217.{number}.{3 - place}"
            inside(host, IP, "address", "add", mine, "peer", peer, "dev", device)
        yield NetworkPath(process)
    finally:
        process.terminate()
        process.communicate()


def on_host(host: str, call: Callable[[], Result]) -> Result:
    """Call something in a thread whose sockets are of that host."""
    found: list[Result] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with Path(f"/run/netns/{host}").open(encoding="utf-8") as file:
                assert ctypes.CDLL(None).setns(file.fileno(), _NEW_NETWORK) == 0
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


class _Relay:
    """Carries packets between two devices."""

    def __init__(self, names: list[str]) -> None:
        self._random = random.Random(16)
        self._delay_s, self._loss, self._cut = 0.0, 0.0, False
        self._loop = asyncio.get_running_loop()
        ends = [_device(name) for name in names]
        for end, other in (ends, ends[::-1]):
            self._loop.add_reader(end, self._carry, end, other)
        self._loop.add_reader(0, self._hear)

    def _hear(self) -> None:
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit(0)
        told = json.loads(line)
        self._delay_s, self._loss, self._cut = told["delay_s"], told["loss_fraction"], told["cut"]

    def _carry(self, end: int, other: int) -> None:
        packet = os.read(end, 2**16)
        if self._cut or self._random.random() < self._loss:
            return
        if self._delay_s:
            self._loop.call_later(self._delay_s, _write, other, packet)
        else:
            _write(other, packet)


def _write(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        return  # its host is gone, or not up yet


def _device(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_NO_HEADER))
    return descriptor


async def _relay(names: list[str]) -> None:
    _Relay(names)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_relay(sys.argv[1:]))
