"""Renders an FP8 scan.

Findings come first, then every group of tensors and the values that its bytes have in the other FP8 dialect.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from penstock.checkpoint.fp8.scan import Fp8Scan, GroupScan
from penstock.checkpoint.fp8.soundness import ScanFinding
from penstock.report.drawing.comparison_table import Column, sheet
from penstock.report.drawing.plain_json import plain
from penstock.units import format_gib

_SHOWN = 8
UNDECIDABLE = (
    "Checked: every code, shape and value of every scale, rows and blocks of zeros, gaps and copies between layers, "
    "the index, the block size of the config. A scan cannot detect scales of a tensor that stay within 12 times of the "
    "median of other layers (or of fewer than four layers); among the scales of one tensor, one that stays within 100 "
    "times of their median, one that is too small, or several that are wrong; the same factor everywhere; "
    "a transposed square block grid, shifted bytes, or layers in the wrong order. "
    "`penstock preflight --probe` compares answers instead."
)


def render_scan(scan: Fp8Scan, width: int) -> RenderableType:
    """Draw a scan."""
    head = Text(f"{scan.tensors:,} FP8 tensors and {scan.scales:,} scales, ")
    head.append(f"{format_gib(scan.scanned_bytes)} GiB read: ")
    damage = sum(finding.level == "damage" for finding in scan.findings)
    odd = len(scan.findings) - damage
    if not scan.tensors:
        head.append("no FP8 tensors", style="bold")
    elif scan.sound:
        head.append("sound", style="bold green")
        head.append(f"\n{UNDECIDABLE}", style="dim")
    else:
        head.append(f"{damage:,} damaged, {odd:,} suspicious", style="bold red" if damage else "bold yellow")
    pieces: list[RenderableType] = [head]
    pieces += [_kind(kind, found) for kind, found in _by_kind(scan.findings).items()]
    if scan.groups:
        pieces += [Text(), sheet(_COLUMNS, [_row(group) for group in scan.groups], width), _legend()]
    return Group(*pieces)


def _by_kind(findings: Sequence[ScanFinding]) -> dict[str, list[ScanFinding]]:
    grouped: dict[str, list[ScanFinding]] = {}
    for finding in findings:
        grouped.setdefault(finding.kind, []).append(finding)
    return grouped


def _kind(kind: str, found: Sequence[ScanFinding]) -> RenderableType:
    style = "bold red" if found[0].level == "damage" else "yellow"
    text = Text(f"{kind} ({len(found):,}): ", style=style)
    text.append(found[0].meaning, style="not bold default")
    for finding in found[:_SHOWN]:
        text.append(f"\n  {finding.tensor}" + (f": {finding.detail}" if finding.detail else ""), style="not bold dim")
    if len(found) > _SHOWN:
        text.append(f"\n  and {len(found) - _SHOWN:,} more", style="not bold dim")
    return Padding(text, (0, 0, 0, 2))


_COLUMNS = (
    *(Column(name, figures=False) for name in ("tensors", "dialect", "scales")),
    *(Column(name) for name in ("GiB", "largest", "other\ndialect", "NaN")),
    *(Column(name) for name in ("not repre-\nsentable", "error,\nunconverted", "error,\ncast")),
)


def _row(group: GroupScan) -> list[str]:
    return [
        f"{group.name} ({group.tensors:,})",
        group.dialect,
        group.scales,
        format_gib(group.stored_bytes),
        f"{group.largest_value:g}",
        f"{group.other_largest_value:g}",
        f"{group.nan_codes:,}",
        f"{group.unrepresentable_fraction:.2%}",
        f"{group.misreading.unconverted:.0%}",
        f"{group.misreading.cast_by_value:.1%}",
    ]


def _legend() -> Text:
    return Text(
        "largest: the largest value before scaling, and the value of the same byte in the other dialect. The last two "
        "columns are the relative error of a layer's output if a chip of the other dialect gets these bytes "
        "unconverted, or cast by value. Engines convert exactly while loading.",
        style="dim",
    )


def scan_document(scan: Fp8Scan) -> dict[str, object]:
    """Return the document that `fp8 scan --json` prints."""
    return {
        "schema": "penstock.fp8-scan/1",
        "sound": scan.sound,
        "undecidable": UNDECIDABLE,
        "scanned_bytes": scan.scanned_bytes,
        "tensors": scan.tensors,
        "scales": scan.scales,
        "findings": [
            {
                "kind": finding.kind,
                "level": finding.level,
                "tensor": finding.tensor,
                "detail": finding.detail,
                "meaning": finding.meaning,
            }
            for finding in scan.findings
        ],
        "groups": plain(scan.groups),
    }
