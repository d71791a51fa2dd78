"""A codec with random weights in its worker process, loaded at its first use. `test_proofs.py` runs
this where torch is."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bench.gpu.random_codecs import random_mimi, write
from engines.base.codec import CodecItem
from engines.codec.items import codes_from_bytes, samples_from_bytes
from serving.codec.model import add_codecs
from serving.models.registry import ModelRegistry
from tests.engines.codec.tiny_codecs import TINY_MIMI
from tests.pipeline.fakes import Counts, LoopClock

pytestmark = pytest.mark.live

BOOKS, RATE_HZ = 4, 24_000


def test_a_worker_encodes_and_decodes(tmp_path: Path) -> None:
    write(random_mimi(**TINY_MIMI), tmp_path / "mimi")
    registry = ModelRegistry({"cpu": 4000.0}, LoopClock(), Counts(), room_setting="asr.memory_mb")

    async def main() -> None:
        codecs = add_codecs(registry, str(tmp_path), LoopClock(), Counts())
        codec = codecs.get("mimi")
        assert codec is not None
        assert codec.state == "unloaded"
        async with registry.running():
            sound = np.zeros(RATE_HZ, "<i2").tobytes()
            data = await codec.convert(CodecItem("encode", sound, BOOKS))
            codes = codes_from_bytes(data, BOOKS)
            assert codes.shape == (1, BOOKS, 13)
            made = await codec.convert(CodecItem("decode", data, BOOKS))
            assert len(samples_from_bytes(made)) == 13 * codec.info.frame_samples

    asyncio.run(main())
