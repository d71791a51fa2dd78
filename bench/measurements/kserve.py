"""Compares recognition through KServe's protocol with uploads, and with faster-whisper called for
one recording after the other.

    python -m bench.measurements.kserve CORPUS --model FOLDER

CORPUS is as for `earshot bench asr`. FOLDER is a model for faster-whisper; all rows use the same
weights, number type, beam size and language. Reading the files is part of the time of each row.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from aiohttp import ClientSession, ClientTimeout

from bench.asr.corpus import CorpusClip, load_corpus, shares
from bench.asr.measure import ClipResult, CorpusPlan, CorpusRun, run
from bench.asr.report.summary import summary
from bench.asr.streaming import StreamedTranscript
from bench.client.http import Address, connect_errors, refusal
from bench.server.own_server import own_server
from bench.tools.stats import machine, markdown
from core.audio import ASR_RATE_HZ
from engines.asr.whisper.device import load_whisper
from engines.asr.whisper.model_info import Settings
from media.files.decode import decode_file

LANGUAGE = "en"

PREFIX = f"<|startoftranscript|><|{LANGUAGE}|><|transcribe|><|notimestamps|>"
"Decoder prefix that the clients of Triton's Whisper send."

TASKS, BATCHES = (4, 16), (1, 4)
COMPUTE_TYPE = "int8"
TIMEOUT_S = 300.0

Samples = npt.NDArray[np.float32]


def main() -> int:
    """Measures and prints the table; returns the exit code: 1 if a recording was not answered."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, metavar="CORPUS")
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--limit", type=int, help="use only the first recordings")
    options = parser.parse_args()
    clips = [clip for clip in load_corpus(options.corpus) if clip.language in (None, LANGUAGE)][
        : options.limit
    ]
    return asyncio.run(_main(options.model.resolve(), clips))


async def _main(model: Path, clips: Sequence[CorpusClip]) -> int:
    print(f"{len(clips)} recordings, {model.name}, {machine()}\n")
    print(markdown(_HEAD, ()), flush=True)
    serial = await asyncio.to_thread(_run_serial, model, clips)
    _print_row("faster-whisper in a loop", serial, serial)
    failed = 0
    with TemporaryDirectory(prefix="earshot-kserve-") as folder:
        config = Path(folder) / "earshot.toml"
        config.write_text(
            '[asr]\nengine = "faster_whisper"\n[asr.options]\n'
            f'model = "{model}"\ncompute_type = "{COMPUTE_TYPE}"\nbeam_size = 1\n'
        )
        async with own_server(["--config", str(config)]) as server:
            await _run_kserve(server.address, 1, 1, clips[:1])  # the first call is slower
            for tasks in TASKS:
                plan = CorpusPlan(
                    server.address, "rest", tasks, language=LANGUAGE, timeout_s=TIMEOUT_S
                )
                uploaded = await run(plan, clips)
                failed += _print_row(f"uploads, {tasks} tasks", uploaded, serial)
                for batch in BATCHES:
                    found = await _run_kserve(server.address, tasks, batch, clips)
                    title = f"KServe, {tasks} tasks, batches of {batch}"
                    failed += _print_row(title, found, serial)
    return 1 if failed else 0


_HEAD = ["way", "RTF", "x the loop", "WER %", "CER %", "p50 ms", "p95 ms", "without an answer"]


def _print_row(title: str, found: CorpusRun, serial: CorpusRun) -> int:
    """Prints the row of a run; returns the number of recordings without an answer."""
    measured = summary(found, LANGUAGE)
    latency_ms = measured["latency_ms"] or {}
    cells = (
        title,
        f"{found.rtf:.4f}",
        f"{serial.wall_s / found.wall_s:.2f}",
        *(f"{measured[rate]['percent']:.2f}" for rate in ("wer", "cer")),
        *(f"{latency_ms[name]:.0f}" if latency_ms else "-" for name in ("p50", "p95")),
        str(measured["failed"]),
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    return int(measured["failed"])


def _run_serial(model: Path, clips: Sequence[CorpusClip]) -> CorpusRun:
    """Calls faster-whisper as sherpa's model for Triton calls it: windows of 30 s, greedy, without
    timestamps, each recording by itself."""
    whisper = load_whisper(model, Settings(str(model), device="cpu", compute_type=COMPUTE_TYPE))

    def text_of(samples: Samples) -> str:
        segments, _ = whisper.transcribe(
            samples,
            language=LANGUAGE,
            beam_size=1,
            temperature=0.0,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return "".join(segment.text for segment in segments).strip()

    text_of(np.zeros(ASR_RATE_HZ, np.float32))
    results: list[ClipResult] = []
    began_s = perf_counter()
    for clip in clips:
        clip_began_s = perf_counter()
        (samples,) = _read([clip])
        text = text_of(samples)
        took_ms = 1000 * (perf_counter() - clip_began_s)
        results.append(
            ClipResult(clip, len(samples) / ASR_RATE_HZ, StreamedTranscript(text, took_ms))
        )
    return CorpusRun(results, perf_counter() - began_s)


async def _run_kserve(
    address: Address, tasks: int, batch: int, clips: Sequence[CorpusClip]
) -> CorpusRun:
    """Sends the recordings in requests of `batch` rows, from several tasks at the same time."""
    began_s = perf_counter()
    timeout = ClientTimeout(total=TIMEOUT_S)
    async with ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
        running = [
            group.create_task(_send_share(http, address, batch, share))
            for share in shares(clips, tasks)
        ]
    results = [result for task in running for result in task.result()]
    return CorpusRun(results, perf_counter() - began_s)


async def _send_share(
    http: ClientSession, address: Address, batch: int, share: Sequence[CorpusClip]
) -> list[ClipResult]:
    results: list[ClipResult] = []
    for start in range(0, len(share), batch):
        clips = share[start : start + batch]
        rows = await asyncio.to_thread(_read, clips)
        began_s = perf_counter()
        texts, error = await _infer(http, address, rows)
        took_ms = 1000 * (perf_counter() - began_s)
        results += [
            ClipResult(clip, len(row) / ASR_RATE_HZ, StreamedTranscript(text, took_ms, error=error))
            for clip, row, text in zip(clips, rows, texts, strict=True)
        ]
    return results


async def _infer(
    http: ClientSession, address: Address, rows: Sequence[Samples]
) -> tuple[list[str], str]:
    """Sends one request. Returns a text for each row, and the error; empty if there was none."""
    body, json_bytes = infer_body(rows)
    headers = {"Inference-Header-Content-Length": str(json_bytes)}
    url = f"{address.url}/v2/models/infer_bls/infer"
    with connect_errors(address):
        async with http.post(url, data=body, headers=headers) as response:
            if not response.ok:
                return [""] * len(rows), str(await refusal(response))
            answer: dict[str, Any] = msgspec.json.decode(await response.read())
    return [str(text).strip() for text in answer["outputs"][0]["data"]], ""


def infer_body(rows: Sequence[Samples]) -> tuple[bytes, int]:
    """Returns the body of a request to recognise recordings, and the length of its JSON; the
    samples follow it. `rows`: 16 kHz, -1 to 1."""
    width = max(map(len, rows))
    padded = np.zeros((len(rows), width), "<f4")
    for row, samples in zip(padded, rows, strict=True):
        row[: len(samples)] = samples
    tensors: list[dict[str, Any]] = [
        {
            "name": "WAV",
            "datatype": "FP32",
            "shape": padded.shape,
            "parameters": {"binary_data_size": padded.nbytes},
        },
        {
            "name": "WAV_LENS",
            "datatype": "INT32",
            "shape": (len(rows), 1),
            "data": [len(samples) for samples in rows],
        },
        {
            "name": "TEXT_PREFIX",
            "datatype": "BYTES",
            "shape": (len(rows), 1),
            "data": [PREFIX] * len(rows),
        },
    ]
    head = json.dumps({"inputs": tensors, "outputs": [{"name": "TRANSCRIPTS"}]}).encode()
    return head + padded.tobytes(), len(head)


def _read(clips: Sequence[CorpusClip]) -> list[Samples]:
    return [np.divide(decode_file(clip.path), 32768, dtype=np.float32) for clip in clips]


if __name__ == "__main__":
    sys.exit(main())
