"""The header of a GGUF file: its properties, and the refusal of truncated and invalid files."""

import struct
from pathlib import Path
from typing import Any

import pytest

from engines.runtime.model_files.gguf_file import UnreadableGgufError, read_gguf_header
from tests.engines.runtime.model_files.tiny_gguf import gguf_bytes

WHOLE = gguf_bytes()


def write_file(folder: Path, data: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


def test_a_header_names_the_model_and_its_limits(tmp_path: Path) -> None:
    header = read_gguf_header(write_file(tmp_path, WHOLE))
    assert (header.architecture, header.name, header.context_tokens) == ("llama", "Tiny", 512)
    assert (header.weight_type, header.has_chat_template) == ("Q8_0", True)
    assert not header.is_projector
    projector = gguf_bytes({"tokenizer.chat_template": ""}, architecture="clip")
    found = read_gguf_header(write_file(tmp_path, projector))
    assert found.is_projector
    assert not found.has_chat_template


def test_a_file_truncated_at_any_byte_is_refused(tmp_path: Path) -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(UnreadableGgufError, match=r"model\.gguf"):
            read_gguf_header(write_file(tmp_path, WHOLE[:end]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_bytes": 100}, "36 bytes of the tensor 'output.weight' missing"),
        ({"shape": (64, 2**40)}, "truncated"),
        ({"shape": (33, 2)}, r"shape \[33, 2\] and type Q8_0 at 0, which is not possible"),
        ({"shape": (0, 2)}, "not possible"),
        ({"shape": (32,) * 5}, "5 dimensions"),
        ({"version": 1}, "version 1 of the format; versions 2 and 3 are known"),
        ({"entries": {"general.alignment": 0}}, "an alignment of 0"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnreadableGgufError, match=message):
        read_gguf_header(write_file(tmp_path, gguf_bytes(**options)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 a zip file", "it does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "is not plausible"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 2**62), "more than the file can hold"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 1, 1, 1, b"a", 77), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 1, 1, 1, b"a", 9, 4, 2**50), "items"),
    ],
)
def test_another_format_or_an_implausible_header_is_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    with pytest.raises(UnreadableGgufError, match=message):
        read_gguf_header(write_file(tmp_path, data))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableGgufError, match="No such file"):
        read_gguf_header(tmp_path / "model.gguf")
