"""A release has a bill of materials and checksums, and its parts agree on the version."""

import hashlib
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from build_sbom import bill_of_materials, checksums, components
from release_notes import notes

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


@pytest.mark.parametrize(
    ("changelog", "complaint"),
    [
        ("## [0.9.0] - 2026-01-01\n- old\n", "no section"),
        ("## [1.0.0] - unreleased\n- new\n", "no date"),
        ("## [1.0.0]\n- new\n", "no date"),
        ("## [1.0.0] - 2026-12-01\n\n## [0.9.0] - 2026-01-01\n- old\n", "empty"),
    ],
)
def test_a_release_needs_a_dated_section_of_the_changelog(changelog: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        notes(changelog, "1.0.0")


def test_notes_are_the_section_of_the_version() -> None:
    changelog = "# Changelog\n\n## [1.0.0] - 2026-12-01\n\n- new\n\n## [0.9.0] - 2026-01-01\n- old\n"
    assert notes(changelog, "1.0.0") == "- new\n"


def _hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", REPOSITORY / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _libraries(folder: Path) -> list[Path]:
    contents = {
        "libpenstock-linux-x86_64.so": b"GLIBC_2.2.5",
        "envoy_module-linux-x86_64.so": b"GLIBC_2.7 GLIBC_2.28",
        "libpenstock-linux-aarch64.so": b"GLIBC_2.17",
        "libpenstock-linux-riscv64.o": b"not linked",
        "stamp.json": b"{}",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def test_a_wheel_has_the_libraries_of_one_platform_and_the_tag_that_they_need(tmp_path: Path) -> None:
    hook, files = _hook(), _libraries(tmp_path)
    intel = hook.libraries_of(tmp_path, "linux-x86_64")
    assert set(intel) == {files[0], files[1]}
    assert hook.platform_tag(intel) == "manylinux_2_28_x86_64"
    assert hook.platform_tag([files[0]]) == hook.platform_tag([files[2]]).replace("aarch64", "x86_64")
    assert hook.platform_tag([files[2]]) == "manylinux_2_17_aarch64"
    assert hook.platform_tag([files[3]]) == "linux_riscv64"
    with pytest.raises(ValueError, match="no library"):
        hook.libraries_of(tmp_path, "linux-s390x")


def test_nothing_is_published_without_a_tag() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    for name in ("publish", "announce"):
        assert workflow["jobs"][name]["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert workflow["permissions"] == {"contents": "read"}
    pushes = [step for step in workflow["jobs"]["image"]["steps"] if "build-push" in step.get("uses", "")]
    assert [step["with"]["push"] for step in pushes] == ["${{ startsWith(github.ref, 'refs/tags/') }}"]


UNPINNED = {"pypa/gh-action-pypi-publish@release/v1"}
"""Its maintainers move the branch to each release; the commit of a release with attestations was not at hand."""


def test_workflow_actions_are_pinned_by_commit() -> None:
    """Attack: whoever moves a tag runs in a workflow that may sign releases."""
    files = [*(REPOSITORY / ".github").rglob("*.yml")]
    used = {name for path in files for name in re.findall(r"uses: ([\w./-]+@[\w./-]+)", path.read_text("utf-8"))}
    assert len(used) > 8
    assert {name for name in used if not re.search(r"@[0-9a-f]{40}$", name)} == UNPINNED
