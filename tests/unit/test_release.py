"""A release has a bill of materials and checksums, and its parts agree on the version."""

import hashlib
import re
import tomllib
from pathlib import Path

import yaml
from build_sbom import bill_of_materials, checksums, components

import penstock

REPOSITORY = Path(__file__).resolve().parents[2]
PINNED = (REPOSITORY / "constraints" / "base.txt").read_text(encoding="utf-8")


def test_every_pinned_package_is_in_the_bill_of_materials_with_its_hashes() -> None:
    bill = bill_of_materials("1.0", PINNED)
    named = {f"{one['name']}=={one['version']}" for one in bill["components"]}
    assert named == set(re.findall(r"^[A-Za-z0-9._-]+==[^\s;\\]+", PINNED, re.MULTILINE))
    assert sum(len(one["hashes"]) for one in bill["components"]) == PINNED.count("--hash=sha256:")


def test_a_package_without_hashes_has_none() -> None:
    assert components("numpy==2.0 ; python_version > '3'\n")[0]["hashes"] == []


def test_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "a.tar.gz").write_bytes(b"source")
    (tmp_path / "SHA256SUMS").write_text("old", encoding="utf-8")
    expected = [hashlib.sha256(content).hexdigest() for content in (b"source", b"wheel")]
    assert checksums(tmp_path) == f"{expected[0]}  a.tar.gz\n{expected[1]}  b.whl\n"


def test_the_version_is_stated_alike() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    base = yaml.safe_load((REPOSITORY / "deploy" / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
    assert {project["version"], str(cited), base["images"][0]["newTag"]} == {penstock.__version__}


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(penstock.__version__)}\]", text, re.MULTILINE)


def test_nothing_is_published_without_a_tag() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    for name in ("publish", "announce"):
        assert workflow["jobs"][name]["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert workflow["permissions"] == {"contents": "read"}
    pushes = [step for step in workflow["jobs"]["image"]["steps"] if "build-push" in step.get("uses", "")]
    assert [step["with"]["push"] for step in pushes] == ["${{ startsWith(github.ref, 'refs/tags/') }}"]
