"""Checks the launch lines that a pull request changes, and comments the verdict. Needs Python, git and penstock.

A launch line is a command that starts vLLM, SGLang, ATOM or TensorRT-LLM, with its continuation lines. Arguments in
Kubernetes lists are not read. Nothing of the pull request is run: lines are passed to `penstock preflight` as text.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

MARK = "<!-- penstock preflight -->"
"""First line of the comment, by which a later run finds it."""
STARTS = re.compile(
    r"\bvllm serve\b|\bsglang\.launch_server\b|\bsglang serve\b|\btrtllm-serve\b|\batom\.entrypoints\b"
    r"|\b(?:docker|podman) run\b.*(?:vllm|sglang|atom|tensorrt-llm)"
)
TARGET = re.compile(r"(?:#|//|<!--)\s*penstock:\s*([\w:,.-]+)")
PROMPT = re.compile(r"^(?:\$|-\s+run:|run:|CMD|RUN|ENTRYPOINT|exec)\s+")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
MAX_LINES = 40
NOT_CHECKED = 4
"""Exit code of `penstock preflight` if nothing is known against a launch, because too little was read to judge."""
TIMEOUT_S = 300
WORDS = {
    "silent-wrong": "runs, but gives wrong answers",
    "blocked": "does not run",
    "risk": "runs, with a risk",
    "slow": "runs, slower than the chip allows",
    "runs": "runs",
    "undetermined": "not checked",
}


@dataclass(frozen=True, kw_only=True)
class LaunchLine:
    """A command in a file: its first and last line, its text, and the accelerators that a comment above it names."""

    path: str
    first: int
    last: int
    command: str
    on: str | None


@dataclass(frozen=True, kw_only=True)
class CheckedLine:
    """A launch line with preflight's document, or with the reason why it could not be checked."""

    line: LaunchLine
    document: Mapping[str, Any] | None
    error: str = ""
    code: int = 0
    """Exit code of preflight."""

    @property
    def passes(self) -> bool:
        """Whether preflight finds nothing against the line."""
        return self.document is not None and bool(self.document["good"])

    @property
    def unchecked(self) -> bool:
        """Whether nothing is known against the line, because too little was read to judge (exit code 4)."""
        return self.code == NOT_CHECKED


def launch_lines(path: str, text: str) -> Iterator[LaunchLine]:
    """Yield the launch lines of a file."""
    lines, at, on = text.splitlines(), 0, None
    while at < len(lines):
        first = at
        while at < len(lines) - 1 and lines[at].rstrip().endswith("\\"):
            at += 1
        at += 1
        words = " ".join(line.strip().removesuffix("\\").rstrip() for line in lines[first:at])
        if (named := TARGET.search(words)) is not None:
            on = named[1]
        elif STARTS.search(words) and not words.startswith("#"):
            yield LaunchLine(path=path, first=first + 1, last=at, command=PROMPT.sub("", words), on=on)
            on = None
        elif words:
            on = None


def changed_lines(diff: str) -> dict[str, set[int]]:
    """Return the line numbers that a diff without context adds or changes, by file."""
    changed: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif (hunk := HUNK.match(line)) is not None:
            start, count = int(hunk[1]), int(hunk[2] or 1)
            # A hunk that only removes lines changes the command around it.
            changed.setdefault(path, set()).update(range(start, start + max(count, 1)))
    return changed


def git(*words: str) -> str:
    """Run git in the checkout and return what it prints."""
    command = ["git", "-c", "core.quotePath=false", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - no shell


def changed_launches(base: str, head: str, patterns: Iterable[str]) -> list[LaunchLine]:
    """Return the launch lines of the head commit that differ from the base commit."""
    diff = git("diff", "--unified=0", "--no-color", "--no-ext-diff", f"{base}...{head}", "--", *patterns)
    found = []
    for path, numbers in changed_lines(diff).items():
        if path != "/dev/null":
            text = git("show", f"{head}:{path}")
            found += [one for one in launch_lines(path, text) if numbers & set(range(one.first, one.last + 1))]
    return found


def check(line: LaunchLine, on: str, options: Iterable[str]) -> CheckedLine:
    """Ask preflight about one launch line."""
    command = ["penstock", "preflight", "--on", line.on or on, "--command", line.command, "--json", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)  # noqa: S603 - no shell
        return CheckedLine(line=line, document=json.loads(done.stdout), code=done.returncode)
    except subprocess.TimeoutExpired:
        return CheckedLine(line=line, document=None, error=f"no answer within {TIMEOUT_S} s")
    except ValueError:
        said = [text for text in done.stderr.splitlines() if text.strip()] or [f"exit code {done.returncode}"]
        return CheckedLine(line=line, document=None, error=said[-1].removeprefix("Error: ")[:300])


def comment_text(checked: list[CheckedLine]) -> str:
    """Return the comment in Markdown: a table of verdicts, then the findings of each line with their fixes."""
    unchecked = sum(one.unchecked for one in checked)
    failed = sum(not one.passes for one in checked) - unchecked
    title = f"{failed} of {len(checked)} changed launch lines fail" if failed else "every changed launch line passes"
    if unchecked:
        title = f"{title}, {unchecked} not checked" if failed else f"{unchecked} of {len(checked)} not checked"
    rows = [MARK, f"### Penstock preflight: {title}", "", "| launch line | on | verdict |", "|---|---|---|"]
    details: list[str] = []
    for one in checked:
        place = f"`{one.line.path.replace('`', '')}:{one.line.first}`"
        if one.document is None:
            rows.append(f"| {place} | | not checked: {_escaped(one.error)} |")
            continue
        for deployment in one.document["deployments"]:
            on = (
                f"{deployment['devices']} x {deployment['accelerator']}, {deployment['engine']} {deployment['version']}"
            )
            verdict = WORDS[deployment["verdict"]]
            rows.append(f"| {place} | {on} | {verdict if one.passes else f'**{verdict}**'} |")
            details += _details(place, deployment, strict=bool(one.document["strict"]))
        if "missing" in one.document:
            details += ["", f"**{place}**", "", f"- memory, kernels and speed: {_escaped(one.document['missing'])}"]
    return "\n".join([*rows, *details]) + "\n"


def _details(place: str, deployment: Mapping[str, Any], *, strict: bool) -> list[str]:
    """Return the findings of one launch line, and the launch that would run instead."""
    found = [f"- {stop['kind']}: {_escaped(stop['text'])}" for stop in deployment["obstacles"]]
    found += [
        f"- {finding['severity']}: {_escaped(finding['message'])} **Fix:** {_escaped(finding['fix'])}"
        for finding in deployment["findings"]
        if finding["severity"] != "info"
    ]
    # A document about a model whose shape is not read has none of these.
    found += [f"- maybe {doubt['kind']}: {_escaped(doubt['text'])}" for doubt in deployment.get("doubts", ())]
    found += [f"- `--strict`: {_escaped(reason)}" for reason in deployment.get("strict_failures", ()) if strict]
    instead = deployment.get("instead")
    if instead is not None:
        fence = "`" * 4
        found += ["", "Launch that would run:", "", f"{fence}sh", instead["launch"]["bare"], fence]
    return ["", f"**{place}**", "", *found] if found else []


def _escaped(text: str) -> str:
    return re.sub(r"([\\`|<>*_\[\]])", r"\\\1", text).replace("\n", " ")


def post(text: str, event: Mapping[str, Any], *, api: str, token: str) -> None:
    """Write the comment, or replace the one that an earlier run wrote."""
    repository, number = event["repository"]["full_name"], int(event["pull_request"]["number"])
    issue = f"{api}/repos/{repository}/issues"
    written = _call("GET", f"{issue}/{number}/comments?per_page=100", token)
    old = next((one["id"] for one in written if one["body"].startswith(MARK)), None)
    if old is None:
        _call("POST", f"{issue}/{number}/comments", token, {"body": text})
    else:
        _call("PATCH", f"{issue}/comments/{int(old)}", token, {"body": text})


def _call(method: str, url: str, token: str, body: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - JSON
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - the API that the runner names
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - same
        return json.load(answer)


def main() -> int:
    """Check the changed lines, comment, and return 1 if one of them fails, or 4 if one could not be judged."""
    environment = os.environ
    event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    if "pull_request" not in event:
        sys.stdout.write("This event is no pull request, so no launch line was checked.\n")
        return 0
    request = event["pull_request"]
    lines = changed_launches(request["base"]["sha"], request["head"]["sha"], environment["PREFLIGHT_FILES"].split())
    options = shlex.split(environment.get("PREFLIGHT_OPTIONS", ""))
    options += ["--strict"] if environment.get("PREFLIGHT_STRICT") == "true" else []
    checked = [check(line, environment["PREFLIGHT_ON"], options) for line in lines[:MAX_LINES]]
    passes = all(one.passes for one in checked) and len(lines) <= MAX_LINES
    text = comment_text(checked) if checked else "No launch line changed.\n"
    if len(lines) > MAX_LINES:
        text += f"\nOnly the first {MAX_LINES} of {len(lines)} changed launch lines were checked.\n"
    for name, written in (("GITHUB_STEP_SUMMARY", text), ("GITHUB_OUTPUT", f"passes={str(passes).lower()}\n")):
        if name in environment:
            with Path(environment[name]).open("a", encoding="utf-8") as file:
                file.write(written)
    sys.stdout.write(text)
    if checked and environment.get("PREFLIGHT_COMMENT") == "true":
        try:
            post(text, event, api=environment["GITHUB_API_URL"], token=environment["GITHUB_TOKEN"])
        except urllib.error.HTTPError as error:
            if error.code not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                raise
            sys.stdout.write("::notice::The token may not write comments; the verdict is in the job summary.\n")
    if passes:
        return 0
    return NOT_CHECKED if all(one.passes or one.unchecked for one in checked) and len(lines) <= MAX_LINES else 1


if __name__ == "__main__":
    raise SystemExit(main())
