"""Audits published figures: `penstock.audit`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from rich.console import RenderableType

from penstock.api.answer import EXIT_NEGATIVE, EXIT_NOT_CHECKED, ApiAnswer, Row
from penstock.audit.claim import Audited, Verdict
from penstock.audit.judge import judge
from penstock.audit.reader import read_sentence, read_text
from penstock.audit.tender import read_sheet
from penstock.errors import UsageError
from penstock.reading.text import read_text as read_file
from penstock.report.audit import AuditDocument, render_audit

_MAX_BYTES: Final = 2_000_000
_HELP: Final = "name a text file or a sheet that was saved as CSV, in UTF-8"
_FILES: Final = (".txt", ".md", ".csv", ".tsv", ".rst", ".html")


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditAnswer(ApiAnswer):
    """Verdicts of an audit, one for each figure, and what was not read."""

    document_type = AuditDocument
    audited: tuple[Audited, ...]

    @property
    def good(self) -> bool:
        """Return whether no claim has a negative verdict and at least one could be judged."""
        verdicts = [entry.judgement.verdict for entry in self.audited]
        return any(verdict.judged for verdict in verdicts) and not any(verdict.negative for verdict in verdicts)

    @property
    def exit_code(self) -> int:
        """Return 0 if all is well, 1 if a verdict is negative, and 4 if nothing could be judged."""
        if self.good:
            return 0
        return EXIT_NEGATIVE if any(entry.judgement.verdict.negative for entry in self.audited) else EXIT_NOT_CHECKED

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of claims per verdict, most serious first."""
        found = Counter(entry.judgement.verdict for entry in self.audited)
        return {verdict.value: found[verdict] for verdict in Verdict if found[verdict]}

    def rows(self) -> list[Row]:
        """Return one row per claim: the document's claims without their sources, and the arithmetic as one text."""
        claims = self.to_dict()["claims"]
        flat = ({**claim, "arithmetic": "; ".join(claim["arithmetic"])} for claim in claims)  # type: ignore[attr-defined]
        return [{key: value for key, value in row.items() if key != "sources"} for row in flat]

    def render(self, columns: int) -> RenderableType:
        """Return what `audit` prints."""
        del columns  # its lines wrap by themselves
        return render_audit(self.audited, self.counts)

    def _summary(self) -> tuple[str, Sequence[str]]:
        if len(self.audited) == 1:
            return self.audited[0].claim.says, [self.audited[0].judgement.verdict.value]
        return f"{len(self.audited)} claims", [f"{count} {verdict}" for verdict, count in self.counts.items()]


def audit(claims: str | PathLike[str]) -> AuditAnswer:
    """Check figures, as `penstock audit` does: of a sentence, of a text file, or of a tender in a CSV file."""
    text = str(claims)
    if not isinstance(claims, str) or (text.lower().endswith(_FILES) and "\n" not in text):
        path = Path(claims)
        content = read_file(path, _HELP, most_bytes=_MAX_BYTES)
        sheet = path.suffix.lower() in {".csv", ".tsv"}
        found = read_sheet(content, path.name) if sheet else read_text(content)
    elif text.lower().endswith((".yaml", ".yml")):
        raise UsageError("claim files in YAML are no longer read; write the claims as sentences into a text file")
    else:
        found = [claim for line in text.splitlines() for claim in read_sentence(line.strip())]
    if not found:
        raise UsageError(f"'{text[:40]}' has no figure; write a claim such as: h100 fp8: 3958 TFLOPS")
    return AuditAnswer(audited=tuple(Audited(claim=claim, judgement=judge(claim)) for claim in found))
