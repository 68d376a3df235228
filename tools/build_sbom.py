"""Writes the files that accompany a release: a software bill of materials (CycloneDX 1.6) and SHA-256 checksums.

python tools/build_sbom.py dist
"""

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
SUMS: Final = "SHA256SUMS"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def components(pinned: str) -> list[dict[str, Any]]:
    """Return a component for each pinned package of a constraints file, with the hashes of its files."""
    found = list(_PIN.finditer(pinned))
    ends = [one.start() for one in found[1:]] + [len(pinned)]
    made = []
    for one, end in zip(found, ends, strict=True):
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", pinned[one.end() : end])
        made.append(
            {
                "type": "library",
                "name": one[1],
                "version": one[2],
                "purl": f"pkg:pypi/{one[1].lower()}@{one[2]}",
                "hashes": [{"alg": "SHA-256", "content": content} for content in hashes],
            }
        )
    return made


def bill_of_materials(version: str, pinned: str) -> dict[str, Any]:
    """Return the bill of materials of the base install."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "penstock",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components(pinned),
    }


def checksums(folder: Path) -> str:
    """Return the lines that `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main() -> int:
    """Write both files into the folder of the release."""
    folder = Path(sys.argv[1])
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = (REPOSITORY / "constraints" / "base.txt").read_text(encoding="utf-8")
    bill = bill_of_materials(project["version"], pinned)
    name = f"penstock-{project['version']}.cdx.json"
    (folder / name).write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    (folder / SUMS).write_text(checksums(folder), encoding="utf-8")
    print(f"{name}: {len(bill['components'])} packages; {SUMS}: {len(checksums(folder).splitlines())} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
