"""Hostile wheels and packs end in one line: no traceback, no endless read, nothing written."""

import struct
import zipfile
from datetime import date
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.preflight.packs.learn_release import learn_wheel
from penstock.preflight.packs.pack import read_pack, write_pack
from penstock.preflight.packs.pack_files import shipped_packs
from penstock.preflight.packs.release_source import MAX_FILE_BYTES
from release_wheels import sglang_files, vllm_files, write_wheel

TODAY = date(2026, 11, 18)
PACK = write_pack(shipped_packs()[0]).encode()
PARSER = "vllm/engine/arg_utils.py"


def refused(path: Path) -> str:
    with pytest.raises(PenstockError) as caught:
        learn_wheel(path, TODAY)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize(
    "source",
    [
        "(" * 100_000,
        "x = " + "[" * 5_000 + "]" * 5_000,
        "-" * 200_000 + "1",
        "a" + ".b" * 200_000,
        "x = " + "+".join(["1"] * 50_000),
        "if 1:\n" + "".join(" " * depth + "if 1:\n" for depth in range(1, 99)) + " " * 99 + "x",
        "\x00",
        "def f(:\n",
        "'''",
        "x = 1\n" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "",
    ],
)
def test_a_parser_that_is_not_a_parser_is_one_line(tmp_path: Path, source: str) -> None:
    refused(write_wheel(tmp_path / "vllm-9.9.0-any.whl", {PARSER: source}))


def test_a_file_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-9.9.0-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as written:
        written.writestr(PARSER, b"#" * (MAX_FILE_BYTES * 4))
    assert wheel.stat().st_size < 100_000
    assert "larger than" in refused(wheel)


def test_a_directory_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr(PARSER, b"#" * (MAX_FILE_BYTES * 2))
    data = bytearray(buffer.getvalue())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    wheel = tmp_path / "vllm-9.9.0-any.whl"
    wheel.write_bytes(data)
    refused(wheel)


def test_names_that_lead_out_of_the_wheel_are_never_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1", encoding="utf-8")
    names = ["../outside.py", "/etc/passwd", "vllm/../../outside.py", "vllm\\engine\\arg_utils.py"]
    wheel = write_wheel(tmp_path / "vllm-9.9.0-any.whl", {**vllm_files(), **dict.fromkeys(names, "y = 2")})
    assert learn_wheel(wheel, TODAY).tables.flags
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside.py", wheel.name]


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-9.9.0-any.whl"
    with zipfile.ZipFile(wheel, "w") as written:
        for number in range(100_001):
            written.writestr(f"{number}", "")
    assert "100,001 files" in refused(wheel)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_wheel_is_read_or_refused_in_one_line(tmp_path: Path, data: st.DataObject) -> None:
    engine, files = data.draw(st.sampled_from((("vllm", vllm_files()), ("sglang", sglang_files()))))
    wheel = write_wheel(tmp_path / f"{engine}-9.9.0-any.whl", files)
    content = bytearray(wheel.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    wheel.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    problem = ""
    try:
        learn_wheel(wheel, TODAY)
    except PenstockError as error:
        problem = str(error)
    assert "\n" not in problem


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.integers(0, len(PACK)).map(lambda end: PACK[:end])))
def test_what_is_no_pack_is_refused_in_one_line(data: bytes) -> None:
    if data.strip() == PACK.strip():
        return
    with pytest.raises(PenstockError) as caught:
        read_pack(data, "hostile.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "1e999999", "NaN", '{"schema": "penstock.pack/1"}', "[]"]
)
def test_json_that_is_no_pack_is_refused(text: str) -> None:
    with pytest.raises(PenstockError) as caught:
        read_pack(text.encode(), "hostile.json")
    assert "\n" not in str(caught.value)
