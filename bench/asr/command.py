"""`earshot bench asr`: arguments, one run, its files.

Exit codes: 0 all recordings were answered; 1 some were not; 2 wrong arguments or corpus; 5 no
connection, or it was refused or lost; 130 interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.json import encode
from msgspec.json import format as pretty

from bench.asr.corpus import CorpusClip, load_corpus, shares
from bench.asr.measure import CorpusPlan, CorpusRun, UploadWay, run
from bench.asr.report import chart, server_stats, triton_files, wis_table
from bench.asr.report.summary import (
    answered,
    recordings,
    scored_characters,
    scored_words,
    summary,
    table,
)
from bench.client.http import Address
from bench.client.realtime import CannotConnect, ConnectionLost
from bench.server.own_server import own_server
from bench.talk.command import TalkExitCode, address_of
from bench.tools.stats import machine
from core.errors import EarshotError, RequestError, expected_failure
from core.terminal import ProgressBar
from media.files.decode import decode_file

DEFAULT_MODEL = "whisper-1"
"Name of OpenAI's model; every server takes it for its own default."

LATENCY_MEANING = {
    "rest": "request to answer",
    "ws": "last speech sample to final text",
    "webrtc": "last speech sample to final text",
}
"From where to where the latency is measured, by the way of sending."


def main(options: argparse.Namespace) -> int:
    """Measures as the options say; returns the exit code."""
    try:
        return asyncio.run(_main(options))
    except KeyboardInterrupt:
        return TalkExitCode.INTERRUPTED
    except (
        BaseExceptionGroup
    ) as group:  # all tasks fail for the same reason: the first error is enough
        known = expected_failure(group)
        if known is None:
            raise
        return _print_error(known)
    except EarshotError as error:
        return _print_error(error)


async def _main(options: argparse.Namespace) -> int:
    clips = _selected_clips(options)
    measured_on = machine()
    async with _server(options) as address:
        if options.wis_table:
            await _wis_table(options, address, clips, measured_on)
            return TalkExitCode.ANSWERED
        plan = _plan(options, address, len(clips))
        before = await server_stats.read(address)
        with ProgressBar(sys.stderr, "recordings") as progress:
            progress.start(len(clips))
            found = await run(plan, clips, progress.add)
        after = await server_stats.read(address)
    stats = after.since(before) if before and after else None
    rejected_words = stats.rejected_words if stats and plan.way != "rest" else None
    report = {
        "corpus": str(_source(options)),
        "server": address.url,
        "way": plan.way,
        "tasks": len(shares(clips, plan.tasks)),
        "model": plan.model or DEFAULT_MODEL,
        "measured_on": measured_on,
        "decoding": dict(plan.decoding),
        "padding_ms": plan.padding_ms,
        **summary(found, plan.language, rejected_words),
    }
    if answered(found):
        _write(options, plan, found, report, server_stats.stats_text(str(report["model"]), stats))
    if options.json:
        print(pretty(encode(report)).decode())
    else:
        print(f"{plan.way}, {report['tasks']} tasks; {measured_on}\n")
        print(table(report, LATENCY_MEANING[plan.way]))
    return _exit_code(found)


def _exit_code(found: CorpusRun) -> int:
    failed = [result for result in found.results if result.answer.error]
    for result in failed[:3]:
        print(f"earshot: {result.clip.id}: {result.answer.error}", file=sys.stderr)
    return TalkExitCode.NOT_ANSWERED if failed else TalkExitCode.ANSWERED


def _write(
    options: argparse.Namespace,
    plan: CorpusPlan,
    found: CorpusRun,
    report: dict[str, object],
    stats: str,
) -> None:
    """Writes the report files, named after the corpus."""
    name = _name(_source(options))
    times_ms = [result.answer.took_ms for result in answered(found)]
    title = f"{name} over {plan.way}, {report['model']}"
    texts = {
        f"rtf-{name}.txt": triton_files.rtf_text(
            found.audio_s, found.wall_s, [time_ms / 1000 for time_ms in times_ms]
        ),
        f"recogs-{name}.txt": triton_files.recogs_text(scored_words(found)),
        f"errs-{name}.txt": triton_files.errs_text(scored_words(found)),
        f"errs-cer-{name}.txt": triton_files.errs_text(scored_characters(found), "CER"),
        f"stats_summary-{name}.txt": stats,
        f"asr-{name}.json": pretty(encode({**report, "each": recordings(found)})).decode(),
        f"asr-{name}.svg": chart.chart(title, times_ms, found.rtf, LATENCY_MEANING[plan.way]),
    }
    try:
        options.log_dir.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (options.log_dir / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{options.log_dir}: {error.strerror or error}") from error


async def _wis_table(
    options: argparse.Namespace, address: Address, clips: Sequence[CorpusClip], measured_on: str
) -> None:
    models = (options.model or DEFAULT_MODEL).split(",")
    speech = await asyncio.to_thread(decode_file, clips[0].path)
    rows = wis_table.measured(
        address, models, speech, language=options.language, timeout_s=options.timeout
    )
    measured_rows = []
    # Seconds of speech, as a long row takes longer.
    with ProgressBar(sys.stderr, "s of speech") as progress:
        progress.start(len(models) * sum(map(round, wis_table.LENGTHS_S)))
        async for row in rows:
            measured_rows.append(row)
            progress.add(round(row.speech_s))
    print(wis_table.table(measured_rows))
    print(f"\n{wis_table.NOTE.format(rounds=wis_table.ROUNDS)} {measured_on}.")


@asynccontextmanager
async def _server(options: argparse.Namespace) -> AsyncGenerator[Address, None]:
    """Yields the address of the named server, or of a server started for the run."""
    if options.url is not None:
        yield address_of(options)
        return
    async with own_server() as server:
        yield server.address


def _plan(options: argparse.Namespace, address: Address, clips: int) -> CorpusPlan:
    if clips < options.num_tasks:
        print(f"earshot: {clips} recordings for {options.num_tasks} tasks", file=sys.stderr)
    way: UploadWay = options.streaming or "rest"
    return CorpusPlan(
        address,
        way,
        options.num_tasks,
        options.model,
        options.language,
        options.timeout,
        _decoding(options),
        options.padding,
    )


def _decoding(options: argparse.Namespace) -> dict[str, str]:
    """Returns the form fields of the decoder that were given. Raises RequestError: streamed
    recordings have none."""
    given = {
        "prompt": options.prompt,
        "hotwords": options.hotwords,
        "prefix": options.prefix,
        "beam_size": str(options.beam or ""),
    }
    fields = {name: value for name, value in given.items() if value}
    if fields and (options.streaming or options.wis_table):
        raise RequestError("--prompt, --hotwords, --prefix and --beam are for uploads only")
    return fields


def _selected_clips(options: argparse.Namespace) -> list[CorpusClip]:
    clips = load_corpus(_source(options))
    if options.language and any(clip.language for clip in clips):
        clips = [clip for clip in clips if clip.language == options.language]
    if not clips:
        raise RequestError(f"{_source(options)} has no recordings in language {options.language!r}")
    return clips[: options.limit]


def _source(options: argparse.Namespace) -> Path:
    source: Path | None = options.corpus or options.manifest_dir
    if source is None:
        raise RequestError("give a corpus: a folder with wav.scp and trans.txt, or a table")
    return source


def _name(source: Path) -> str:
    """Returns the name of a folder, or of a table without suffix. A table `transcripts` is named
    after its folder."""
    source = source.resolve()
    stem = source.name if source.is_dir() else source.stem
    return source.parent.name if stem == "transcripts" else stem.split(".")[0]


def _print_error(error: EarshotError) -> int:
    print(f"earshot: {error}", file=sys.stderr)
    match error:
        case CannotConnect() | ConnectionLost():
            return TalkExitCode.CONNECTION_FAILED
        case RequestError():
            return TalkExitCode.USAGE
        case _:
            return TalkExitCode.NOT_ANSWERED
