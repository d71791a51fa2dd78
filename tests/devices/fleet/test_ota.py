"""Firmware images in their folder, and names that lead out of it."""

import random
from hashlib import sha256
from pathlib import Path

import pytest

from core.errors import NotFound, RequestError
from devices.fleet.ota import FirmwareFolder, version_key

IMAGE = b"\xe9" + bytes(1000)


def folder(root: Path) -> FirmwareFolder:
    for name in ("0.9.1/BOX.bin", "0.10.0/BOX.bin", "0.10.0-rc.2/BOX.bin", "local/BOX-3.bin"):
        file = root / "ota" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(IMAGE)
    (root / "secret.bin").write_bytes(b"secret")
    return FirmwareFolder(root / "ota")


def test_an_image_has_a_size_and_a_checksum(tmp_path: Path) -> None:
    found = folder(tmp_path).find("0.9.1", "BOX")
    assert (found.size_bytes, found.sha256) == (1001, sha256(IMAGE).hexdigest())


def test_a_changed_image_has_another_checksum(tmp_path: Path) -> None:
    images = folder(tmp_path)
    images.find("0.9.1", "BOX").path.write_bytes(b"new")
    assert images.find("0.9.1", "BOX").sha256 == sha256(b"new").hexdigest()
    assert len(images._digests) == 1


def test_the_newest_comes_first(tmp_path: Path) -> None:
    images = folder(tmp_path)
    assert [one.version for one in images.all()] == ["0.10.0", "0.10.0-rc.2", "0.9.1", "local"]
    newest = images.newest("BOX")
    assert newest is not None
    assert newest.version == "0.10.0"
    assert images.newest("BOX-LITE") is None


def test_versions_are_sorted_as_people_count_them() -> None:
    """The oldest first."""
    versions = [
        "local",
        "0.9",
        "0.10.0-2",
        "0.10.0-beta",
        "0.10.0-rc.2",
        "0.10.0-rc.10",
        "0.10.0",
        "0.10.1-rc1",
        "0.10.1-rc9",
        "0.10.1-rc10",
        "0.10.1",
        "1.0.0+b7",
        "1.0.1",
        "10.0",
    ]
    mixed = random.Random(1).sample(versions, len(versions))
    assert sorted(mixed, key=version_key) == versions


@pytest.mark.parametrize(
    ("there", "newest", "releases"),
    [
        (("2.4.0", "2.5.0-rc.1"), "2.4.0", ["2.4.0"]),
        (("2.4.0", "v9", "nightly", "2.10.0", "2.9.0"), "2.10.0", ["2.10.0", "2.9.0", "2.4.0"]),
        (("2.5.0-rc.9", "2.5.0-rc.10"), "2.5.0-rc.10", []),
        (("local",), "local", []),
    ],
)
def test_a_release_is_not_hidden_by_other_files(
    tmp_path: Path, there: tuple[str, ...], newest: str, releases: list[str]
) -> None:
    for version in there:
        (tmp_path / version).mkdir()
        (tmp_path / version / "BOX.bin").write_bytes(IMAGE)
    images = FirmwareFolder(tmp_path)
    found = images.newest("BOX")
    assert found is not None
    assert found.version == newest
    assert [one.version for one in images.releases("BOX")] == releases


def test_an_empty_folder_has_no_images(tmp_path: Path) -> None:
    assert FirmwareFolder(tmp_path / "none").all() == []
    with pytest.raises(NotFound):
        FirmwareFolder(tmp_path / "none").find("0.9.1", "BOX")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../..",
        "..%2f..",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "a\0b",
        "a..b",
        "x" * 65,
        "é",
    ],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    images = folder(tmp_path)
    for version, board in ((name, "BOX"), ("0.9.1", name)):
        for act in (images.find, images.delete):
            with pytest.raises(RequestError, match="must be") as error:
                act(version, board)
            assert error.value.code == "invalid_value"
    assert (tmp_path / "secret.bin").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    images = folder(tmp_path)
    (tmp_path / "ota/0.9.1/LINK.bin").symlink_to(tmp_path / "secret.bin")
    (tmp_path / "ota/9.9").symlink_to(tmp_path, target_is_directory=True)
    for version, board in (("0.9.1", "LINK"), ("9.9", "secret")):
        with pytest.raises(NotFound):
            images.find(version, board)
    assert {one.version for one in images.all()} == {"0.9.1", "0.10.0", "0.10.0-rc.2", "local"}


def test_a_deleted_image_takes_its_empty_folder_along(tmp_path: Path) -> None:
    images = folder(tmp_path)
    images.delete("0.9.1", "BOX")
    assert not (tmp_path / "ota/0.9.1").exists()
    with pytest.raises(NotFound):
        images.delete("0.9.1", "BOX")
