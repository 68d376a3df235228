"""Which setups are known to run? Writes tests/data/world/runs.csv from InferenceX's configurations and launch scripts.

Needs clones with full history: `python tools/build_world.py --inferencex DIR --vllm DIR --sglang DIR`.
A row is a single-node configuration whose result ships in inferencex_cells.csv, on a release whose image the
configuration named; its flags are what the launch script of that day passed. Nothing but the setup is copied.
"""

import argparse
import csv
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CELLS = ROOT / "src/penstock/catalog/data/measurements/inferencex_cells.csv"
RUNS = ROOT / "tests/data/world/runs.csv"
SERVED = ROOT / "src/penstock/preflight/data/served.toml"
FIELDS = ("case", "engine", "release", "known_by", "model", "weights", "checkpoint", "accelerator", "tp", "dp", "ep",
          "context_tokens", "flags", "image", "date", "source")  # fmt: skip
MODELS = {
    "dsr1": "deepseek-r1",
    "dsv4": "deepseek-v4-pro",
    "glm5": "glm-5",
    "glm5.1": "glm-5.1",
    "gptoss": "gpt-oss-120b",
    "kimik2.5": "kimi-k2.5",
    "minimaxm2.5": "minimax-m2.5",
    "minimaxm3": "minimax-m3",
    "qwen3.5": "qwen3.5-397b-a17b",
}
BOARDS = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm"}
ENGINES = {"trt": "trtllm"}
PRECISIONS = {"fp4": {"mxfp4", "nvfp4"}, "fp8": {"fp8", "mxfp8"}, "int4": {"int4"}, "bf16": {"bf16"}}
KEPT = ("kv-cache-dtype", "gpu-memory-utilization", "mem-fraction-static", "quantization", "block-size",
        "attention-backend", "moe-backend", "max-num-batched-tokens")  # fmt: skip
_TAGGED = re.compile(r"(?:^v?|-v|vllm_|atom)(\d+\.\d+\.\d+(?:\.?(?:rc|post)\d*)*)")
_COMMIT = re.compile(r"(?:nightly-(?:dev-)?(?:cu13-)?(?:\d{8}-)?|mi35x-)([0-9a-f]{7,40})")


def git(clone: Path, *arguments: str) -> str:
    """Read from a clone."""
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - no shell


@dataclass(frozen=True)
class Setup:
    """One point of a search space, on one image."""

    key: str
    runner: str
    framework: str
    prefix: str
    checkpoint: str
    precision: str
    image: str
    devices: int
    expert_ranks: int
    attention_ranks: bool
    drafts: bool


@dataclass
class ObservedSetups:
    """Where it was first written, and the longest requests."""

    commit: str
    path: str
    date: str
    context_tokens: int = 0


@dataclass
class History:
    """Every single-node setup InferenceX ever configured."""

    clone: Path
    date: str = ""
    seen: dict[Setup, ObservedSetups] = field(default_factory=dict)

    def read(self) -> None:
        """Walk the commits that touched a configuration, oldest first."""
        paths = (".github/configs", "configs", ":(glob)**/*-master.yaml")
        known: set[str] = set()
        for entry in git(self.clone, "log", "--reverse", "--format=%H %cs", "--", *paths).splitlines():
            commit, self.date = entry.split()
            for line in git(self.clone, "ls-tree", "-r", commit).splitlines():
                meta, _, path = line.partition("\t")
                blob = meta.split()[2]
                if blob in known or not re.search(r"(amd|nvidia)[\w.-]*master\.ya?ml$", path):
                    continue
                known.add(blob)
                self._file(commit, path, git(self.clone, "cat-file", "blob", blob))

    def _file(self, commit: str, path: str, text: str) -> None:
        try:
            document = yaml.load(text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            return  # one commit of the history does not parse
        for key, config in document.items() if isinstance(document, dict) else ():
            if isinstance(config, dict) and config.get("multinode") not in {True, "true"}:
                self._config(commit, path, key, config)

    def _config(self, commit: str, path: str, key: str, config: Mapping[str, Any]) -> None:
        lengths = config.get("seq-len-configs") or (config.get("scenarios") or {}).get("fixed-seq-len") or []
        for length in lengths if isinstance(lengths, list) else []:
            for point in length.get("search-space") or []:
                if "prefill" in point or "tp" not in point:
                    continue
                setup = Setup(
                    key, str(config["runner"]), str(config["framework"]), str(config["model-prefix"]),
                    str(config["model"]), str(config["precision"]), str(config["image"]), int(point["tp"]),
                    int(point.get("ep") or 1), bool(point.get("dp-attn")),
                    point.get("spec-decoding", "none") not in {None, "none"},
                )  # fmt: skip
                seen = self.seen.setdefault(setup, ObservedSetups(commit, path, self.date))
                seen.context_tokens = max(seen.context_tokens, int(length["isl"]) + int(length["osl"]))


@dataclass(frozen=True)
class Clones:
    """The histories releases are looked up in."""

    inferencex: Path
    vllm: Path
    sglang: Path

    @cache  # noqa: B019 - one instance a run
    def release(self, image: str) -> tuple[str, str]:
        """Return the release inside an image, and how it is known: its tag, or the first release with its commit."""
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        if "sg" in image and (dated := re.search(r"-(20\d{6})$", tag)):
            # A build of that day, named after the release before it.
            return self._next_release(dated[1]), "date"
        if found := _TAGGED.search(tag):
            return found[1], "tag"
        if found := _COMMIT.search(tag):
            clone = self.sglang if "sg" in image else self.vllm
            described = git(clone, "describe", "--tags", "--contains", found[1]).strip()
            if described:
                base = re.sub(r"rc\d+$", "", described.split("~")[0].removeprefix("v"))
                return base, "commit"
        return "", "unnamed"

    @cache  # noqa: B019 - one instance a run
    def _next_release(self, day: str) -> str:
        listed = git(
            self.sglang,
            "for-each-ref",
            "--sort=creatordate",
            "--format=%(creatordate:format:%Y%m%d) %(refname:short)",
            "refs/tags",
        )
        days = (line.split() for line in listed.splitlines())
        return next(
            (tag.removeprefix("v") for when, tag in days if when >= day and re.fullmatch(r"v[\d.]+(post\d+)?", tag)), ""
        )

    @cache  # noqa: B019 - one instance a run
    def script(self, setup: Setup, commit: str) -> str:
        """Return the launch script of that day."""
        runner = re.sub(r"^cluster:", "", setup.runner).split("-")[0]
        stem = f"{setup.prefix}_{setup.precision}_{runner}"
        ends = "_mtp" if setup.drafts else ""
        wanted = [f"{stem}_{setup.framework}{ends}.sh", f"{stem}{ends}.sh"]
        for name in wanted:
            for path in git(self.inferencex, "ls-tree", "-r", "--name-only", commit, "benchmarks").splitlines():
                if path.rsplit("/", 1)[-1] == name and "agentic" not in path:
                    return git(self.inferencex, "show", f"{commit}:{path}")
        return ""


def flags_of(script: str, setup: Setup) -> Iterator[str]:
    """Keep the flags with plain values that decide memory and kernels; remarks name flags too."""
    script = re.sub(r"^\s*#.*", "", script, flags=re.MULTILINE)
    for name in KEPT:
        for value in re.findall(rf"--{name}[ =]\"?([$\w.{{}}]+)\"?(?=[\s\\)]|$)", script)[:1]:
            variable = value.strip("${}")
            # A script that chooses by load or split ran with each of its values; the largest asks most.
            choices = re.findall(rf"\b{variable}=\"?([0-9.]+)\b", script) if "$" in value else [value]
            if choices:
                yield f"--{name} {max(choices)}"
    if setup.drafts and setup.framework == "vllm":
        tokens = re.search(r"num_speculative_tokens\D{1,12}(\d+)", script)
        yield f"""--speculative-config '{{"method": "mtp", "num_speculative_tokens": {tokens[1] if tokens else 1}}}'"""
    elif setup.drafts:
        yield "--speculative-algorithm EAGLE --speculative-num-steps 3"


def rows(clones: Clones, history: History) -> Iterator[dict[str, object]]:
    """Join what was configured with what was measured."""
    with CELLS.open(newline="", encoding="utf-8") as file:
        cells = [row for row in csv.DictReader(file) if row["scenario"] == "online" and row["nodes"] in {"", "1"}]
    measured = {cell["ref"]: cell for cell in cells}
    for ref, cell in sorted(measured.items(), key=lambda item: int(item[0])):
        matching = [(setup, seen) for setup, seen in history.seen.items() if matches(setup, cell)]
        releases = set()
        for setup, seen in matching:
            release, known_by = clones.release(setup.image)
            if (release, setup.checkpoint) in releases:
                continue
            releases.add((release, setup.checkpoint))
            yield row(clones, cell, ref, setup, seen, (release, known_by))
        if not matching:
            yield unnamed(cell, ref, cells)


def matches(setup: Setup, cell: Mapping[str, str]) -> bool:
    """Whether a result belongs to a setup."""
    runner = re.sub(r"^cluster:", "", setup.runner).split("-")[0]
    ranks = int(cell["dp"] or 1)
    return (
        BOARDS.get(runner, runner) == cell["accelerator"]
        and ENGINES.get(setup.framework, setup.framework) == cell["engine"]
        and MODELS.get(setup.prefix) == cell["model"]
        and cell["weights"] in PRECISIONS.get(setup.precision, {setup.precision})
        and setup.devices == int(cell["tp"]) * ranks
        and setup.attention_ranks == (ranks > 1)
        and setup.drafts == bool(cell["drafted"])
        and (setup.expert_ranks > 1) == (cell["ep"] == "1")
    )


def row(
    clones: Clones, cell: Mapping[str, str], ref: str, setup: Setup, seen: ObservedSetups, release: tuple[str, str]
) -> dict[str, object]:
    """One configuration on one release."""
    script = clones.script(setup, seen.commit)
    # Some scripts spread experts whole whenever the variable is set, one rank included.
    spread = cell["ep"] == "1" or bool(re.search(r"EP_SIZE\"? -ge 1 ", script) and "enable-expert-parallel" in script)
    return {
        "case": f"ix{ref}",
        "engine": cell["engine"],
        "release": release[0],
        "known_by": release[1],
        "model": cell["model"],
        "weights": cell["weights"],
        "checkpoint": setup.checkpoint.split(" or ")[0],
        "accelerator": cell["accelerator"],
        "tp": cell["tp"],
        "dp": cell["dp"] or "1",
        "ep": int(spread),
        "context_tokens": seen.context_tokens,
        "flags": " ".join(flags_of(script, setup)),
        "image": setup.image.replace("#", "/").partition("@")[0],
        "date": seen.date,
        "source": f"inferencex@{seen.commit[:12]}:{seen.path}#{setup.key}",
    }


def unnamed(cell: Mapping[str, str], ref: str, cells: list[dict[str, str]]) -> dict[str, object]:
    """A result whose configuration left the files before their history begins: it ran, on a release nobody names."""
    lengths = [other for other in cells if other["ref"] == ref]
    # Cells state mean lengths, nine tenths of the nominal ones.
    longest = max(float(other["input_tokens"]) + float(other["output_tokens"]) for other in lengths) / 0.9
    drafts = """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""" if cell["drafted"] else ""
    return {
        "case": f"ix{ref}", "engine": cell["engine"], "release": "", "known_by": "unnamed", "model": cell["model"],
        "weights": cell["weights"], "checkpoint": "", "accelerator": cell["accelerator"], "tp": cell["tp"],
        "dp": cell["dp"] or "1", "ep": int(cell["ep"] == "1"), "context_tokens": round(longest),
        "flags": drafts, "image": "", "date": "",
        "source": f"https://github.com/SemiAnalysisAI/InferenceX-app (dump of 2026-07-20, configuration {ref})",
    }  # fmt: skip


SERVED_HEAD = """# Who was measured serving a model on a part: engine, the newest image, formats and splits.
# From the configuration files of SemiAnalysisAI/InferenceX (Apache-2.0), by tools/build_world.py.
"""


def write_served() -> None:
    """Write preflight/data/served.toml from the runs: for each model and part, every engine with its newest image."""
    held: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = {}
    with RUNS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["image"] and row["image"] != "TBD":
                held.setdefault((row["model"], row["accelerator"]), {}).setdefault(row["engine"], []).append(row)
    lines = [SERVED_HEAD.rstrip()]
    for (model, part), engines in sorted(held.items()):
        lines.append(f'\n["{model}".{part}]')
        for engine, found in sorted(engines.items()):
            newest = max(found, key=lambda row: row["date"])
            formats = ", ".join(f'"{name}"' for name in sorted({row["weights"] for row in found}))
            counts = sorted({int(row["tp"]) * int(row["dp"]) for row in found})
            lines.append(
                f'{engine} = {{ image = "{newest["image"]}", until = "{newest["date"]}", weights = [{formats}], '
                f"devices = {counts} }}"
            )
    SERVED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("inferencex", "vllm", "sglang"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    named = parser.parse_args()
    clones = Clones(named.inferencex, named.vllm, named.sglang)
    history = History(named.inferencex)
    history.read()
    written = list(rows(clones, history))
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    with RUNS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(written)
    write_served()
    print(f"{len(written)} rows, {len({entry['case'] for entry in written})} configurations")


if __name__ == "__main__":
    main()
