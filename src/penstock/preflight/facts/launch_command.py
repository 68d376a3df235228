"""Parses a pasted launch command: `vllm serve`, `sglang.launch_server`, ATOM, `trtllm-serve` or `docker run`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Final

from penstock.errors import UsageError
from penstock.fleet.serving_engines import ServingEngine
from penstock.preflight.facts.shell_words import shell_words, substitute_variables
from penstock.preflight.facts.situation import Launch

_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127})=(.*)", re.DOTALL)
_IMAGE: Final = re.compile(r"[\w.-]+(/[\w.-]+)+:[\w.-]+")
_DEVICES: Final = re.compile(r"[\w:.-]+(,[\w:.-]+)*")
_SHOWN_BY: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_SHORT: Final = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-ep": "enable-expert-parallel",
    "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-q": "quantization",
    "-n": "nnodes",
    "-sc": "speculative-config",
    "-cc": "compilation-config",
    "-r": "node-rank",
}
_OTHER_SHORT: Final = re.compile(r"-(O.*|ac|asc|dc|dp[abehlmnpr]|h|m|v|l?c)", re.DOTALL)
"""Short names of options that no fact uses (vllm/engine/arg_utils.py, read in 0.16.0 to 0.33.0), and a shell's -c."""
_SAME: Final = {
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dp-size": "data-parallel-size",
    "ep": "ep-size",
    "expert-parallel-size": "ep-size",
    "model": "model-path",
    "moe-expert-parallel-size": "ep-size",
    "extra-llm-api-options": "config",
}
"""Long names of flags, keyed by short name. Facts use the long names."""
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES: Final = frozenset({"--rm", "--privileged", "--init", "--detach", "--interactive", "--tty", "--read-only"})
"""Options of `docker run` that take no value. One-letter options may be combined, as in -itd."""
_SEPARATORS: Final = frozenset({"&&", "||", ";", "|", "&"})
_SERVERS: Final = frozenset(
    {"sglang.launch_server", "trtllm-serve", "vllm.entrypoints.openai.api_server", "atom.entrypoints.openai_server"}
)
_OTHER_VERBS: Final = frozenset({"bench", "chat", "complete", "collect-env", "run-batch"})
_ENDS_ARGUMENTS: Final = re.compile(r"-|\d*[<>&]|.*[$({\[<]|\.\.\.|#")
"""Words that begin options or redirections, and words that are not known or stand for something else."""
_MAX_COMMAND: Final = 20_000


def parse_command(text: str) -> tuple[ServingEngine | None, Launch]:
    """Parse a launch command. The engine is None if the command does not name an engine."""
    if len(text) > _MAX_COMMAND:
        raise UsageError(f"--command: the launch command has {len(text):,} characters; the limit is {_MAX_COMMAND:,}")
    read = shell_words(text)
    if not read.words:
        raise UsageError("--command: the launch command is empty")
    environment = dict(_variables(read.words))
    _refuse_other_programs(read.words)
    tokens = [substitute_variables(word, environment) for word in _server_words(read.words)]
    image, arguments = _after_image(tokens)
    inner = dict(_variables(arguments))
    arguments = arguments[_program_at(arguments) :]
    given = dict(_flags(arguments))
    if (model := _positional_model(arguments)) is not None:
        given.setdefault("model-path", model)
    flags = {name: "true" if value is None else value for name, value in given.items()}
    return _engine(tokens, image), Launch(
        flags=flags,
        environment=environment | inner,
        image=image,
        typed=tuple(tokens),
        bare=frozenset(name for name, value in given.items() if value is None),
        torn=(*read.torn, *_extra_arguments(arguments)),
        one_dash=frozenset(long_name(name) for word in _options(arguments) if (name := _meant_by_one_dash(word))),
        visible_devices=_visible(tokens, environment | inner),
        slices=any("MIG-" in word for word in (*tokens, *(environment | inner).values())),
    )


def _server_words(words: Sequence[str]) -> list[str]:
    """Return the words of the command that starts a server, of a line of several commands.

    Variables that earlier commands set count. The whole line is returned if no command of it starts a server.
    """
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            commands.append([])
            continue
        commands[-1].append(word.removesuffix(";"))
        if word.endswith(";"):
            commands.append([])
    return next((command for command in commands if _starts_server(command)), list(words))


def _starts_server(command: Sequence[str]) -> bool:
    names = {word.rpartition("/")[2] for word in command}
    runs = any(pair in {(tool, "run") for tool in _CONTAINERS} for pair in pairwise(command))
    return runs or bool(names & _SERVERS) or ("serve" in names and bool(names & {"vllm", "sglang"}))


def _program_at(words: Sequence[str]) -> int:
    """Return where the server's program begins, or 0. Options before it are those of a wrapper, such as `numactl`."""
    names = [word.rpartition("/")[2] for word in words]
    for number, name in enumerate(names):
        if name in _SERVERS:
            # `python -m` belongs to the program.
            return max(number - 2, 0) if names[number - 1 : number] == ["-m"] else number
        if name in {"vllm", "sglang"} and names[number + 1 : number + 2] == ["serve"]:
            return number
    return 0


def _visible(tokens: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Return how many devices environment variables or `--gpus` show to the engine, or None for all devices."""
    counts = [
        listed.count(",") + 1
        for name in _SHOWN_BY
        if (listed := environment.get(name)) and listed != "-1" and _DEVICES.fullmatch(listed)
    ]
    for number, token in enumerate(tokens):
        name, equals, inline = token.partition("=")
        given = inline if equals else next(iter(tokens[number + 1 : number + 2]), "")
        if name == "--gpus" and (asked := given.strip("'\"")) != "all":
            listed = asked.removeprefix("device=")
            counts += [listed.count(",") + 1] if asked != listed else [int(asked)] if asked.isdecimal() else []
    return min(counts, default=None)


def _refuse_other_programs(tokens: Sequence[str]) -> None:
    """Raise an error if the command benchmarks or queries a server instead of starting one."""
    programs = [token.rpartition("/")[2] for token in tokens]
    if (
        "vllm" in programs
        and programs[programs.index("vllm") + 1 :][:1]
        and ((verb := programs[programs.index("vllm") + 1]) in _OTHER_VERBS)
    ):
        raise UsageError(
            f"--command: 'vllm {verb}' does not start a server; give the `vllm serve` command of the server instead"
        )
    other = next((token for token in tokens if token.startswith(("sglang.bench", "sglang.test"))), None)
    if other is not None:
        raise UsageError(
            f"--command: '{other}' does not start a server; give the `sglang.launch_server` command of the server "
            "instead"
        )


def _engine(tokens: Sequence[str], image: str | None) -> ServingEngine | None:
    """Return the engine that a command starts.

    An image of ATOM's plug-in or SGLang's variable for ATOM's models makes it vLLM or SGLang with ATOM.
    """
    words = " ".join((*tokens, image or ""))
    if "trtllm-serve" in words or "tensorrt-llm/release" in words:
        return "trtllm"
    if "atom.entrypoints" in words:
        return "atom"
    if "sglang" in words:
        return "sglang-atom" if "atom.plugin.sglang" in words or "rocm/atom" in words else "sglang"
    if "vllm" in words:
        return "vllm-atom" if "rocm/atom" in words else "vllm"
    return "atom" if "rocm/atom" in words else None


def _variables(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the environment variables set before the program, and those set by docker's `-e NAME=VALUE`."""
    leading = True
    for number, word in enumerate(tokens):
        match = _VARIABLE.fullmatch(word.removesuffix(";"))
        given = number > 0 and tokens[number - 1] in {"-e", "--env"}
        if match and (leading or given):
            yield match[1], match[2]
        elif word.startswith(("-e", "--env=")) and (inline := _VARIABLE.fullmatch(word.split("=", 1)[-1])):
            yield inline[1], inline[2]
        else:
            leading = word == "env" or (leading and word in {"export", "sudo", "&&"})


def _after_image(tokens: list[str]) -> tuple[str | None, list[str]]:
    """Return the image and the arguments after it.

    If the arguments are a shell command (`bash -c`), return the words of that command.
    """
    at = _image_at(tokens)
    if at is None:
        return None, tokens
    arguments = tokens[at + 1 :]
    if len(arguments) > 2 and arguments[0].rpartition("/")[2] in {"bash", "sh"} and arguments[1] in {"-c", "-lc"}:
        arguments = list(shell_words(arguments[2]).words)
    return tokens[at], arguments


def _image_at(tokens: Sequence[str]) -> int | None:
    """Return the position of the container image among the words of a command.

    In `docker run`, the image is the first word after the options. In other commands, the image is a word with a tag.
    """
    started = next((number for number, token in enumerate(tokens) if token in _CONTAINERS), None)
    if started is None or started + 1 >= len(tokens) or tokens[started + 1] != "run":
        return next((number for number, token in enumerate(tokens) if _IMAGE.fullmatch(token)), None)
    at = started + 2
    while at < len(tokens) and tokens[at].startswith("-"):
        option = tokens[at]
        letters = not option.startswith("--") and set(option[1:]) <= set("itdP")
        at += 1 if "=" in option or option in _SWITCHES or letters else 2
    return at if at < len(tokens) else None


def _flags(tokens: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each flag with its value. The value is None if another option or nothing follows the flag."""
    first = len(tokens) - len(_options(tokens))
    for number, token in enumerate(tokens):
        name, equals, value = token.partition("=")
        if name in _SHORT:
            key = _SHORT[name]
        elif number >= first and (meant := _meant_by_one_dash(token)) is not None:
            key = long_name(meant)
        elif name.startswith("--") and len(name) > 2:  # `--` alone ends options
            key = long_name(name[2:].replace("_", "-"))
        else:
            continue
        following = tokens[number + 1] if number + 1 < len(tokens) else "--"
        yield key, value if equals else (None if _is_option(following) else following)


def _options(arguments: Sequence[str]) -> Sequence[str]:
    """Return the words after the server's program. Options before it are those of Python or of a wrapper."""
    names = [word.rpartition("/")[2] for word in arguments]
    programs = [number for number, name in enumerate(names) if name in _SERVERS or name == "serve"]
    return arguments[programs[0] + 1 :] if programs else arguments


def _meant_by_one_dash(word: str) -> str | None:
    """Return the name of an option that is typed with one dash and that no server has with one, or None.

    argparse refuses such an option, or takes its first letter as an option and the rest as its value.
    """
    name = word.partition("=")[0]
    if not _is_option(word) or name.startswith("--") or name.partition(".")[0] in _SHORT or name == "-":
        return None
    return None if _OTHER_SHORT.fullmatch(name.partition(".")[0]) else name[1:].replace("_", "-")


def _is_option(word: str) -> bool:
    """Return whether a word begins an option. A negative number is a value, not an option."""
    return word.startswith("-") and re.fullmatch(r"-\d+(\.\d+)?", word) is None


def long_name(flag: str) -> str:
    """Return the long name of a flag, which facts use."""
    return _SAME.get(flag, flag)


def _extra_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Describe the words after the model of `vllm serve`, which takes one argument and then options."""
    words = [word.rpartition("/")[2] for word in arguments]
    at = next((number for number, pair in enumerate(pairwise(words)) if pair == ("vllm", "serve")), len(words))
    given = list(takewhile(lambda word: not _ENDS_ARGUMENTS.match(word), arguments[at + 2 :]))
    for word in given[1:]:
        yield f"'{word}' after the model: vllm serve takes one argument, and refuses another"


def _positional_model(arguments: Sequence[str]) -> str | None:
    """Return the model that the command names without a flag, or None.

    The model is the word after `serve`, or the first argument of an image that starts the server itself.
    """
    started = next((number for number, word in enumerate(arguments) if word.rpartition("/")[2] == "trtllm-serve"), None)
    if "serve" in arguments:
        follows = arguments[arguments.index("serve") + 1 :]
    elif started is not None:
        follows = arguments[started + 1 :]
    elif not any(word.rpartition("/")[2] in {"vllm", "sglang", "python", "python3"} for word in arguments):
        follows = arguments
    else:
        return None
    return follows[0] if follows and not follows[0].startswith("-") else None
