"""`earshot models bench --recordings`: measures word errors, times and memory of the recognisers in
the models folder on the user's own recordings. `auto` uses the results."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from bench.asr.corpus import load_corpus
from bench.asr.error_rates import ScoredText, errors_of, normalised, words
from bench.tools.stats import percentile
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.ids import new_id
from core.errors import EarshotError, RequestError
from core.terminal import ProgressBar
from engines.base import AsrItem, AsrOptions
from media.files.decode import FileLimits, decode_file
from server.commands.columns import align_columns
from server.compose.choices import PlacementInputs, describe, preference, survey
from server.config import Config
from server.models.errors import ModelsError
from server.models.inventory import find_installed
from server.models.one_worker import run_one_worker
from server.runtime.clock import SystemClock
from server.runtime.metrics import PrometheusMetrics
from serving.asr.scheduling import DecodePriority
from serving.placement.benchmarks import device_name
from serving.placement.choose import AUTO, WHISPER, EnginePreference, select_engine
from serving.placement.offers import LoadableModel, OfferInputs, asr_model_offers
from serving.placement.recordings import RecordingsBenchmark, save_recordings_benchmark
from serving.placement.sherpa import SHERPA

TABLE = "transcripts.tsv"
"File in the folder of recordings with their paths and texts."

MAX_RECORDING_S = 30.0
"Longest recording, in seconds: one window of Whisper. Utterances of live speech are shorter."


@dataclass(frozen=True, slots=True)
class TranscribedRecording:
    """One recording and what is said in it."""

    id: str
    pcm: Pcm
    text: str
    "Normalised text, as errors are counted."


@dataclass(frozen=True, slots=True)
class Recordings:
    """The recordings of one language in a folder."""

    language: str
    items: Sequence[TranscribedRecording]
    words: int
    "Number of words that are said."
    left_out: int
    "Number of recordings in other languages."
    checksum: str
    "Checksum of the files and their texts, in order."


@dataclass(frozen=True, slots=True)
class ModelOnRecordings:
    """Result of one model."""

    model: str
    engine: str
    measured: RecordingsBenchmark | None
    "None: it could not be measured."
    problem: str = ""
    "Why it could not be measured; empty if it was."


@dataclass(frozen=True, slots=True)
class RecordingsReport:
    """Results of all models, and what `auto` does with them."""

    recordings: int
    left_out: int
    "Number of recordings in other languages."
    words: int
    language: str
    device: str
    models: Sequence[ModelOnRecordings]
    auto: str
    "Engine that `auto` takes, with the reason."


def measure(
    config: Config, models_dir: Path, source: Path, name: str, progress: ProgressBar
) -> RecordingsReport:
    """Measures one model, or all if the name is empty, and saves each result. Blocking; loads one
    model after the other. Raises EarshotError or OSError."""
    inputs = survey(str(models_dir), ["asr"])
    # The options of the configuration belong to one engine, and `auto` compares models without.
    wanted = replace(preference(config, "asr"), engine=AUTO, model=AUTO, options={})
    offers = _offers(models_dir, inputs, wanted, name)
    recordings = read_recordings(source, config.language)
    device = device_name(inputs.hardware)
    results: list[ModelOnRecordings] = []
    with progress:
        progress.start(len(offers) * len(recordings.items))
        for offer in offers:
            result = _measured(offer, recordings, device, progress)
            if result.measured is not None:
                folder = Path(offer.options["model"]).name
                save_recordings_benchmark(models_dir, folder, result.measured)
            results.append(result)
    return RecordingsReport(
        len(recordings.items),
        recordings.left_out,
        recordings.words,
        recordings.language,
        device,
        results,
        _choice_of_auto(models_dir, wanted),
    )


def as_lines(report: RecordingsReport) -> Iterator[str]:
    """Yields the result in lines for people."""
    rows: list[tuple[str, ...]] = [
        ("MODEL", "ENGINE", "SIZE", "WORD ERRORS", "P50", "P95", "MEMORY")
    ]
    for result in report.models:
        if (found := result.measured) is None:
            continue
        rows.append(
            (
                result.model,
                result.engine,
                f"{found.size_mb:.0f} MB",
                f"{found.word_errors_percent:.1f} %",
                f"{found.p50_ms:.0f} ms",
                f"{found.p95_ms:.0f} ms",
                f"{found.memory_mb:.0f} MB",
            )
        )
    if len(rows) > 1:
        yield from align_columns(rows)
    for result in report.models:
        if result.problem:
            yield f"{result.model}: not measured: {result.problem}"
    left_out = f", {report.left_out} in other languages left out" if report.left_out else ""
    yield (
        f"{report.recordings} recordings in {report.language!r} with {report.words} words"
        f"{left_out}; times are per utterance, on {report.device}"
    )
    yield f"auto takes {report.auto}"


def read_recordings(source: Path, language: str) -> Recordings:
    """Reads the recordings in one language. `source`: a table, or a folder with one or with wav.scp
    and trans.txt. Those without a language count as being in this one.

    Raises RequestError if a table or a recording cannot be used, or if none is in the language.
    """
    table = source / TABLE
    clips = load_corpus(table if table.is_file() else source)
    chosen = [clip for clip in clips if (clip.language or language) == language]
    if not chosen:
        known = ", ".join(sorted({clip.language for clip in clips if clip.language}))
        raise RequestError(f"{source}: no recording is in {language!r}; there are: {known}")
    items: list[TranscribedRecording] = []
    checksum = sha256(language.encode())
    limits = FileLimits(max_duration_s=MAX_RECORDING_S)
    for clip in chosen:
        try:
            data = clip.path.read_bytes()
            pcm = decode_file(data, ASR_RATE_HZ, limits)
        except OSError as error:
            raise RequestError(f"{clip.path}: {error.strerror or error}") from error
        except EarshotError as error:
            raise RequestError(f"{clip.path}: {error}") from error
        text = normalised(clip.text, language)
        items.append(TranscribedRecording(clip.id, pcm, text))
        for part in (text.encode(), data):
            checksum.update(sha256(part).digest())
    said = sum(len(words(item.text)) for item in items)
    left_out = len(clips) - len(chosen)
    return Recordings(language, items, said, left_out, checksum.hexdigest())


def _offers(
    models_dir: Path, inputs: PlacementInputs, wanted: EnginePreference, name: str
) -> list[LoadableModel]:
    """Returns the models to measure, placed as the server would place them. Raises ModelsError or
    EngineMissing."""
    choice = select_engine("asr", wanted, inputs.engines["asr"], inputs.weights, inputs.hardware)
    machine = OfferInputs(inputs.hardware, inputs.engines["asr"], wanted, choice)
    offers = [
        offer
        for offer in asr_model_offers(machine, inputs.weights, inputs.sherpa)
        if offer.engine in (WHISPER, SHERPA)
    ]
    if name:
        path = str(find_installed(models_dir, name).path)
        offers = [offer for offer in offers if offer.options["model"] == path]
    if not offers:
        what = f"{name} is none" if name else f"there is none in {models_dir}"
        missing = [
            f"; {engine.name}: {engine.reason}"
            for engine in inputs.engines["asr"]
            if engine.name in (WHISPER, SHERPA) and not engine.installed
        ]
        raise ModelsError(
            "--recordings measures Whisper and models of sherpa-onnx for which the engine is"
            f" installed, and {what}{''.join(missing)}"
        )
    return offers


def _measured(
    offer: LoadableModel, recordings: Recordings, device: str, progress: ProgressBar
) -> ModelOnRecordings:
    """Measures one model. A model that cannot be measured does not end the run."""
    try:
        known = describe(offer).languages
        if recordings.language not in known:
            problem = f"it does not know {recordings.language!r}, only {', '.join(known)}"
            return ModelOnRecordings(offer.name, offer.engine, None, problem)
        benchmark = asyncio.run(_decode_all(offer, recordings, device, progress))
    except EarshotError as error:
        return ModelOnRecordings(offer.name, offer.engine, None, str(error))
    return ModelOnRecordings(offer.name, offer.engine, benchmark)


async def _decode_all(
    offer: LoadableModel, recordings: Recordings, device: str, progress: ProgressBar
) -> RecordingsBenchmark:
    clock, options = SystemClock(), AsrOptions(language=recordings.language)
    times_ms: list[float] = []
    texts: list[ScoredText] = []
    async with run_one_worker(offer, clock, PrometheusMetrics()) as worker:
        await worker.warm_up()
        for item in recordings.items:
            request = AsrItem(new_id("bench"), item.pcm, is_final=True, options=options)
            began_s = clock.now()
            result = await worker.submit(request, DecodePriority.FINAL)
            times_ms.append(1000 * (clock.now() - began_s))
            heard = normalised(result.text, recordings.language)
            texts.append(ScoredText(item.id, words(item.text), words(heard)))
            progress.add()
        memory_mb = worker.resident_mb()
    return RecordingsBenchmark(
        size_mb=offer.size_mb,
        recordings=recordings.checksum,
        language=recordings.language,
        device=device,
        words=recordings.words,
        word_errors_percent=errors_of(texts).percent,
        p50_ms=percentile(times_ms, 50),
        p95_ms=percentile(times_ms, 95),
        memory_mb=memory_mb,
    )


def _choice_of_auto(models_dir: Path, wanted: EnginePreference) -> str:
    """Returns the engine that `auto` takes with the results, and the reason."""
    found = survey(str(models_dir), ["asr"])
    choice = select_engine(
        "asr", wanted, found.engines["asr"], found.weights, found.hardware, found.sherpa
    )
    return f"{choice.name}: {choice.why}"
