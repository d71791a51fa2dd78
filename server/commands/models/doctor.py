"""`earshot models doctor`: checks that a model is complete, loads and decodes."""

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import EarshotError
from engines.base import AsrItem, AsrModel, EndOfTurnDetector, Tts
from engines.base.text import ClipItem, EmbedItem, RerankItem
from engines.codec.settings import codec_name
from engines.registry import EngineKind, load
from engines.runtime.model_files.gguf_file import read_gguf_header
from engines.runtime.model_files.gguf_folder import model_files
from engines.speaker.sherpa.model_file import find_speaker_file
from server.commands.doctor import print_result
from server.commands.doctor_probes import ProbeResult
from server.models.download import sha256
from server.models.inventory import ModelFolder, read_record, turn_detector_file
from server.models.voices import PIPER, with_pulled
from serving.placement.choose import SMART_TURN, WHISPER
from serving.placement.sherpa import SHERPA
from serving.speaker.model import GE2E

WARM_UP_S = 1.0
"Length of the noise that is decoded as a test, in seconds."

SHOWN_LANGUAGES = 8
"Number of languages that are listed by their code; of the others the number is given."


def show(models_dir: Path, models: Sequence[ModelFolder]) -> int:
    """Checks the models and prints each result as soon as it is known. Returns the number of
    failed checks."""
    if not models:
        print(f"no models in {models_dir}; `earshot models pull auto` downloads one")
    failed = 0
    for model in models:
        for result in check(model):
            print_result(result)
            failed += result.verdict == "fail"
    return failed


def as_json(models_dir: Path, models: Sequence[ModelFolder]) -> tuple[str, int]:
    """Checks the models. Returns all results as JSON, and the number of failed checks."""
    checks = {model: list(check(model)) for model in models}
    failed = sum(result.verdict == "fail" for results in checks.values() for result in results)
    report = {
        "models_dir": str(models_dir),
        "failed": failed,
        "models": [
            {"name": model.name, "path": str(model.path), "kind": model.kind, "checks": results}
            for model, results in checks.items()
        ],
    }
    return msgspec.json.encode(report).decode(), failed


def check(model: ModelFolder) -> Iterator[ProbeResult]:
    """Yields the results of the checks, and ends with the first failed one. Blocking; loads the
    weights."""
    if model.kind == "partial":
        yield ProbeResult("note", f"{model.name}: partly downloaded; pull it again to continue")
        return
    if model.kind == "checkpoint":
        yield ProbeResult(
            "note", f"{model.name}: a checkpoint; `earshot models convert` makes a model"
        )
        return
    if model.kind == "broken":
        yield ProbeResult("fail", f"{model.name}: {model.path} {model.problem}")
        return
    description = model.weight_type or model.languages
    yield ProbeResult("ok", f"{model.name}: {model.path} is complete, {description}")
    changed_files = yield from _check_checksums(model)
    if not changed_files:
        match model.kind:
            case "voice":
                yield from _check_voice(model)
            case "embed" | "rerank" | "clip":
                yield from _check_text_model(model)
            case "llm":
                yield _language_model_result(model)
            case "speaker":
                is_sherpa = find_speaker_file(model.path) is not None
                yield from _check_loading(model, "speaker", SHERPA if is_sherpa else GE2E)
            case "codec":
                yield from _check_loading(model, "codec", str(codec_name(model.path)))
            case "punctuation":
                pass  # it is checked by its notes, and loaded with a recogniser
            case "endpoint":
                yield from _check_turn_detector(model)
            case _:
                yield from _check_model(model)


def _check_checksums(model: ModelFolder) -> Generator[ProbeResult, None, int]:
    """Compares the files with their recorded checksums. Returns the number of changed files."""
    try:
        record = read_record(model.path)
    except EarshotError as error:
        yield ProbeResult("fail", str(error))
        return 1
    if record is None:
        yield ProbeResult(
            "note", f"{model.name}: its checksums are not recorded, so the files cannot be compared"
        )
        return 0
    changed = [
        name for name, digest in record.files.items() if _digest(model.path / name) != digest
    ]
    if changed:
        yield ProbeResult(
            "fail",
            f"{model.name}: {', '.join(changed)} changed since the download;"
            f" `earshot models rm {model.path.name}`, then pull it again",
        )
    else:
        origin = f"{record.source} {record.revision[:12]}".strip()
        yield ProbeResult("ok", f"{model.name}: {len(record.files)} checksums match, from {origin}")
    return len(changed)


def _digest(path: Path) -> str:
    return sha256(path) if path.is_file() else ""


def _check_voice(model: ModelFolder) -> Iterator[ProbeResult]:
    engine = model.name.partition(":")[0]
    options = with_pulled(
        engine, {"model": model.name} if engine == PIPER else {}, model.path.parent
    )
    began_s = time.monotonic()
    try:
        voice: Tts = load("tts", engine, options)
    except EarshotError as error:  # the library of the voice is an extra
        yield ProbeResult("fail", f"{model.name}: {error}")
        return
    load_s = time.monotonic() - began_s
    languages = ", ".join(voice.info.voices)
    yield ProbeResult("ok", f"{model.name}: loads in {load_s:.1f} s; speaks {languages}")


def _check_text_model(model: ModelFolder) -> Iterator[ProbeResult]:
    """Loads a model for embeddings or reranking, or a CLIP, and computes one text; reports the
    times."""
    options = {"model": str(model.path)}
    began_s = time.monotonic()
    try:
        if model.kind == "embed":
            embedder = load("embed", "onnx", options)
            loaded_s = time.monotonic()
            embedder.embed([EmbedItem(("a test",))])
        elif model.kind == "clip":
            clip = load("clip", "onnx", options)
            loaded_s = time.monotonic()
            clip.embed([ClipItem(("a test",))])
        else:
            reranker = load("rerank", "onnx", options)
            loaded_s = time.monotonic()
            reranker.rerank([RerankItem("a test", ("a test",))])
    except EarshotError as error:
        yield ProbeResult("fail", f"{model.name}: {error}")
        return
    compute_ms = (time.monotonic() - loaded_s) * 1000
    yield ProbeResult(
        "ok",
        f"{model.name}: loads in {loaded_s - began_s:.1f} s and computes a text in"
        f" {compute_ms:.0f} ms",
    )


def _language_model_result(model: ModelFolder) -> ProbeResult:
    """Says what the header of a GGUF file promises. The model is not loaded, because its server
    may not be installed here."""
    file = model.path if model.path.is_file() else model_files(model.path)[0]
    header = read_gguf_header(file)
    if not header.has_chat_template:
        return ProbeResult("note", f"{model.name}: it has no chat template, so it cannot converse")
    context = f"{header.context_tokens} tokens" if header.context_tokens else "an unknown context"
    return ProbeResult("ok", f"{model.name}: {header.architecture}, {context}, a chat template")


def _check_turn_detector(model: ModelFolder) -> Iterator[ProbeResult]:
    """Loads a model for turn detection and judges a second of noise; reports the time."""
    try:
        detector: EndOfTurnDetector = load(
            "endpoint", SMART_TURN, {"path": str(turn_detector_file(model.path))}
        )
        began_s = time.monotonic()
        detector.probability(_noise())
    except EarshotError as error:
        yield ProbeResult("fail", f"{model.name}: {error}")
        return
    judge_ms = (time.monotonic() - began_s) * 1000
    yield ProbeResult("ok", f"{model.name}: judges a pause in {judge_ms:.0f} ms")


def _check_loading(model: ModelFolder, kind: EngineKind, engine: str) -> Iterator[ProbeResult]:
    """Loads a model and reports the time."""
    began_s = time.monotonic()
    try:
        load(kind, engine, {"model": str(model.path)})
    except EarshotError as error:
        yield ProbeResult("fail", f"{model.name}: {error}")
        return
    yield ProbeResult("ok", f"{model.name}: loads in {time.monotonic() - began_s:.1f} s")


def _noise() -> Pcm:
    noise = np.random.default_rng(0).normal(0, 1000, int(WARM_UP_S * ASR_RATE_HZ))
    return noise.astype(np.int16)


def _check_model(model: ModelFolder) -> Iterator[ProbeResult]:
    """Loads a recogniser and decodes a second of noise; reports the times."""
    engine = SHERPA if model.kind == "sherpa" else WHISPER
    began_s = time.monotonic()
    try:
        recogniser: AsrModel = load("asr", engine, {"model": str(model.path)})
        loaded_s = time.monotonic()
        try:
            _warm_up(recogniser)
        finally:
            recogniser.close()
    except EarshotError as error:
        yield ProbeResult("fail", f"{model.name}: {error}")
        return
    except (RuntimeError, ValueError) as error:  # CTranslate2's own errors
        yield ProbeResult("fail", f"{model.name}: does not decode: {error}")
        return
    decode_ms = (time.monotonic() - loaded_s) * 1000
    yield ProbeResult(
        "ok",
        f"{model.name}: loads in {loaded_s - began_s:.1f} s and decodes"
        f" {WARM_UP_S:g} s of noise in {decode_ms:.0f} ms",
    )
    languages = recogniser.info.languages
    listed = ", ".join(languages[:SHOWN_LANGUAGES])
    more = f" and {len(languages) - SHOWN_LANGUAGES} more" if languages[SHOWN_LANGUAGES:] else ""
    yield ProbeResult("ok", f"{model.name}: knows {listed}{more}")


def _warm_up(model: AsrModel) -> None:
    model.decode([AsrItem("doctor", _noise(), is_final=True)])
