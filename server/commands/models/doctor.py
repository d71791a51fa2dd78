"""`earshot models doctor`: checks that a model is complete, loads and decodes."""

import time
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from core.audio import ASR_RATE_HZ
from core.errors import EarshotError
from engines.base import AsrItem, AsrModel, Tts
from engines.registry import load
from server.commands.doctor_probes import ProbeResult
from server.models.download import sha256
from server.models.inventory import ModelFolder, read_record
from server.models.voices import PIPER, with_pulled
from serving.placement.choose import WHISPER

WARM_UP_S = 1.0
"Length of the noise that is decoded as a test, in seconds."

SHOWN_LANGUAGES = 8


def check(one: ModelFolder) -> Iterator[ProbeResult]:
    """Yields results until something is wrong. Blocking; loads the weights."""
    if one.kind == "partial":
        yield ProbeResult("note", f"{one.name}: partly downloaded; pull it again to continue")
        return
    if one.kind == "checkpoint":
        yield ProbeResult(
            "note", f"{one.name}: a checkpoint; `earshot models convert` makes a model"
        )
        return
    if one.kind == "broken":
        yield ProbeResult("fail", f"{one.name}: {one.path} {one.problem}")
        return
    kind = one.weight_type or one.languages
    yield ProbeResult("ok", f"{one.name}: {one.path} is complete, {kind}")
    wrong = yield from _checksums(one)
    if not wrong:
        yield from (_check_voice(one) if one.kind == "voice" else _check_model(one))


def _checksums(one: ModelFolder) -> Generator[ProbeResult, None, int]:
    """Compares the files with their recorded checksums. Returns the number of changed files."""
    try:
        record = read_record(one.path)
    except EarshotError as error:
        yield ProbeResult("fail", str(error))
        return 1
    if record is None:
        yield ProbeResult(
            "note", f"{one.name}: its checksums are not recorded, so the files cannot be compared"
        )
        return 0
    wrong = [name for name, digest in record.files.items() if _digest(one.path / name) != digest]
    if wrong:
        yield ProbeResult(
            "fail",
            f"{one.name}: {', '.join(wrong)} changed since the download;"
            f" `earshot models rm {one.path.name}`, then pull it again",
        )
    else:
        origin = f"{record.source} {record.revision[:12]}".strip()
        yield ProbeResult("ok", f"{one.name}: {len(record.files)} checksums match, from {origin}")
    return len(wrong)


def _digest(path: Path) -> str:
    return sha256(path) if path.is_file() else ""


def _check_voice(one: ModelFolder) -> Iterator[ProbeResult]:
    engine = one.name.partition(":")[0]
    options = with_pulled(engine, {"model": one.name} if engine == PIPER else {}, one.path.parent)
    began_s = time.monotonic()
    try:
        voice: Tts = load("tts", engine, options)
    except EarshotError as error:  # the library of the voice is an extra
        yield ProbeResult("fail", f"{one.name}: {error}")
        return
    took_s = time.monotonic() - began_s
    languages = ", ".join(voice.info.voices)
    yield ProbeResult("ok", f"{one.name}: loads in {took_s:.1f} s; speaks {languages}")


def _check_model(one: ModelFolder) -> Iterator[ProbeResult]:
    """Loads a Whisper model and decodes a second of noise; reports the times."""
    began_s = time.monotonic()
    try:
        model = load("asr", WHISPER, {"model": str(one.path)})
        loaded_s = time.monotonic()
        try:
            _warm_up(model)
        finally:
            model.close()
    except EarshotError as error:
        yield ProbeResult("fail", f"{one.name}: {error}")
        return
    except (RuntimeError, ValueError) as error:  # CTranslate2's own errors
        yield ProbeResult("fail", f"{one.name}: does not decode: {error}")
        return
    decode_ms = (time.monotonic() - loaded_s) * 1000
    yield ProbeResult(
        "ok",
        f"{one.name}: loads in {loaded_s - began_s:.1f} s and decodes"
        f" {WARM_UP_S:g} s of noise in {decode_ms:.0f} ms",
    )
    languages = model.info.languages
    listed = ", ".join(languages[:SHOWN_LANGUAGES])
    more = f" and {len(languages) - SHOWN_LANGUAGES} more" if languages[SHOWN_LANGUAGES:] else ""
    yield ProbeResult("ok", f"{one.name}: knows {listed}{more}")


def _warm_up(model: AsrModel) -> None:
    noise = np.random.default_rng(0).normal(0, 1000, int(WARM_UP_S * ASR_RATE_HZ))
    model.decode([AsrItem("doctor", noise.astype(np.int16), is_final=True)])
