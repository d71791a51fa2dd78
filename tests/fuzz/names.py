"""Names, versions and codes of devices, the versions in their images, and names of models."""

from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import cast

from core.errors import RequestError
from devices.fleet.ota import MAX_NAME_CHARS, check_name, is_release, version_key
from devices.fleet.pairing import CODE_DIGITS, read_code
from devices.registry.sanitize import MAX_NAME_CHARS as MAX_SHOWN_CHARS
from devices.registry.sanitize import sanitize_line
from devices.xiaozhi.firmware import version_in
from devices.xiaozhi.ota_check import is_newer
from server.models.errors import ModelsError
from server.models.source_spec import source_of
from serving.models.catalogue import UnknownModelError
from tests.fuzz.target import Target

ROOT = PurePosixPath("/firmware")
IMAGE = b"\xe9" + bytes(31) + bytes.fromhex("3254cdab") + bytes(12)
"""The start of an image up to its version: two headers, the magic number of `esp_app_desc_t`, and
its security version."""

PAIRS = (
    *(b"123-456\n123 456", b"0.10\n0.9", b"0.10-rc.10\n0.10-rc.9", b"1.2.3+4\n1.2.3"),
    *(b"local\n1.0", b"ESP32-S3-BOX-3\n1.2.3", b"../a\na/b", b"v2..3\n.hidden"),
)
MODELS = (
    *(b"tiny.en", b"all-MiniLM-L6-v2", b"piper:en_US-lessac-medium", b"hibari:emma", b"kokoro"),
    *(b"sherpa:sherpa-onnx-x", b"sherpa:../x"),
    *(b"a/b", b"https://hub.example/a/b/tree/main", b"../a/b", b"a/..", b".a/b"),
)


class _Image:
    """A file in memory; one on the disk for each input would take most of the time."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, mode: str) -> BytesIO:
        assert mode == "rb"
        return BytesIO(self._data)


def device_names(data: bytes) -> None:
    """Checks codes, names that stay in their folder, and the order of versions, for two texts of a
    line each. The whole input is an image, too, and its first line the version in another."""
    one, _, other = data.decode(errors="replace").partition("\n")
    for text in (one, other):
        _code(text)
        _name(text)
        shown = sanitize_line(text)
        assert sanitize_line(shown) == shown
        assert len(shown) <= MAX_SHOWN_CHARS
        assert shown.isprintable()
    _order(one, other)
    _image(data)


def _code(text: str) -> None:
    try:
        code = read_code(text)
    except RequestError as error:
        assert (error.code, error.param) == ("invalid_value", "code")
        return
    assert len(code) == CODE_DIGITS
    assert 0 <= int(code) < 10**CODE_DIGITS
    assert read_code(code) == read_code(f"{code[:3]} - {code[3:]}") == code


def _name(text: str) -> None:
    try:
        name = check_name("version", text)
    except RequestError as error:
        assert (error.code, error.param) == ("invalid_value", "version")
        assert len(str(error)) < 200
        return
    assert name == text
    assert len(name.encode()) <= MAX_NAME_CHARS
    path = ROOT / name / f"{name}.bin"
    assert path.relative_to(ROOT).parts == (name, f"{name}.bin")
    assert not {"..", ".", ""} & set(str(path).removeprefix("/").split("/"))


def _order(one: str, other: str) -> None:
    ages = version_key(one), version_key(other)
    assert (ages[0] < ages[1]) + (ages[0] == ages[1]) + (ages[0] > ages[1]) == 1
    assert version_key(one + "+build") == ages[0]
    assert not (is_newer(one, other) and is_newer(other, one))
    assert not is_newer(one, one)
    if is_release(one):
        assert check_name("version", one) == one
        assert version_key(one + "-rc.1") < ages[0] < version_key(one + ".1")


def _image(data: bytes) -> None:
    text = version_in(cast(Path, _Image(data)))
    assert len(text) <= 32
    assert text.isprintable()
    said = data.partition(b"\n")[0][:32].partition(b"\0")[0]
    again = version_in(cast(Path, _Image(IMAGE + said.ljust(32, b"\0"))))
    assert len(again) == len(said)
    assert again.encode() == said or not (said.isascii() and said.decode().isprintable())


def model_names(data: bytes) -> None:
    """Checks that the name of a model to download, which becomes a folder, stays in its folder."""
    try:
        source = source_of(data.decode(errors="replace"))
    except (ModelsError, UnknownModelError) as error:
        str(error).encode()
        return
    for folder in (source.folder, source.repository):
        assert not {"..", ".", ""} & set(folder.split("/"))
        assert not folder.startswith((".", "/"))
    assert "/" not in source.folder


TARGETS = (
    Target(
        name="model_names",
        one_input=model_names,
        seeds=MODELS,
        words=("piper:", "hibari:", "--", "..", "/", "%2f", "/tree/", "https://", "\\", "\0"),
        max_bytes=256,
    ),
    Target(
        name="device_names",
        one_input=device_names,
        seeds=(*PAIRS, IMAGE + b"1.2.3".ljust(32, b"\0"), IMAGE + b"\xff\n" * 16),
        words=("-rc.1", "+build", "0.10", "..", "/", "\\", "123456", "١٢٣"),
        max_bytes=512,
    ),
)
