"""Uploads in temporary files: they are read back, limits hold, and no file stays behind."""

import asyncio
from io import BytesIO
from pathlib import Path

import pytest

from core.errors import OverloadedError, PayloadTooLarge
from media.files.upload_spool import BLOCK_BYTES, SpoolLimits, UploadSpool, UploadSpools


def spools(folder: Path, **limits: int) -> UploadSpools:
    return UploadSpools(SpoolLimits(**limits), folder)


@pytest.mark.parametrize("sizes", [(), (1,), (BLOCK_BYTES,), (BLOCK_BYTES - 1, 5, 3 * BLOCK_BYTES)])
def test_a_written_upload_is_read_back(sizes: tuple[int, ...], tmp_path: Path) -> None:
    pieces = [bytes([index + 1]) * size for index, size in enumerate(sizes)]

    async def scene() -> None:
        with spools(tmp_path).open() as spool:
            for piece in pieces:
                await spool.write(piece)
            for _ in range(2):
                assert (await spool.file()).read() == b"".join(pieces)
            assert spool.size_bytes == sum(sizes)
        with pytest.raises(ValueError, match="closed"):
            await spool.file()

    asyncio.run(scene())
    assert list(tmp_path.iterdir()) == []


def test_memory_holds_at_most_one_block(tmp_path: Path) -> None:
    async def scene() -> None:
        with spools(tmp_path).open() as spool:
            for _ in range(20):
                await spool.write(bytes(BLOCK_BYTES // 2))
                assert len(spool._waiting) < BLOCK_BYTES

    asyncio.run(scene())


def test_the_size_of_one_upload_is_limited(tmp_path: Path) -> None:
    async def scene() -> None:
        with spools(tmp_path, max_bytes=1000).open() as spool:
            await spool.write(bytes(1000))
            with pytest.raises(PayloadTooLarge, match="more than 1000 bytes") as error:
                await spool.write(b"x")
            assert (error.value.code, error.value.param) == ("audio_too_large", "file")

    asyncio.run(scene())


def test_the_total_size_of_uploads_is_limited_and_is_freed(tmp_path: Path) -> None:
    async def scene() -> None:
        shared = spools(tmp_path, max_bytes=1000, max_total_bytes=1500)
        with shared.open() as first, shared.open() as second:
            await first.write(bytes(1000))
            with pytest.raises(OverloadedError, match="1000 of 1500 bytes"):
                await second.write(bytes(501))
            await second.write(bytes(500))
            assert (shared.count, shared.used_bytes) == (2, 1500)
        assert (shared.count, shared.used_bytes) == (0, 0)

    asyncio.run(scene())


def test_the_number_of_uploads_is_limited(tmp_path: Path) -> None:
    shared = spools(tmp_path, max_uploads=1)
    with shared.open(), pytest.raises(OverloadedError, match="1 uploads"), shared.open():
        pass
    with shared.open():
        assert shared.count == 1


class FullDisk(BytesIO):
    """A file on a full disk."""

    def write(self, _: object, /) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_reported() -> None:
    async def scene() -> None:
        spool = UploadSpool(FullDisk(), 10**9, lambda _: None)
        with pytest.raises(OverloadedError, match="No space left"):
            await spool.write(bytes(BLOCK_BYTES))

    asyncio.run(scene())
