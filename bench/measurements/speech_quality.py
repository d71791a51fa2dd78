"""Measures the quality of voices: words that a recogniser reads back, seams, loudness and pauses.

    python -m bench.measurements.speech_quality MODEL_FOLDER
    python -m bench.measurements.speech_quality MODEL_FOLDER --voice hibari:heart --voice espeak:de

MODEL_FOLDER holds a Whisper model for faster-whisper; a voice that speaks no English needs a
multilingual one. Each voice speaks a text as a response is spoken: clause by clause. A border is
where a clause ends and the next begins; it is compared with the pauses inside clauses: how abruptly
the speech begins behind the pause, and how much louder or quieter it is than the speech before.
"""

import argparse
import asyncio
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.measurements.material.sound_quality import jumps, loudness_lufs, pause_at, pauses
from bench.tools.stats import machine, markdown
from bench.tools.word_errors import word_errors
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from engines.base import AsrItem, AsrModel, AsrOptions, Tts
from engines.registry import load
from media.resample import Resampler
from pipeline.speech.file import single_text
from pipeline.speech.normalize import speakable
from pipeline.speech.synthesis import SpeechPlan, SpeechSynthesis, clauses_of

TEXTS = Path(__file__).with_name("speech_quality.toml")

VOICES = ("hibari:heart", "espeak:en-us", "espeak:en-gb", "espeak:de", "espeak:fr-fr", "espeak:es")
"Voices that are measured unless some are named."

LEAST_PAUSE_MS = 60.0
"Shortest pause inside a clause that a border is compared with."

READ_MS = 25_000
"Longest sound that is read back at once: Whisper's window is 30 s."


@dataclass(frozen=True, slots=True)
class SpokenText:
    """The sound of a text, and where its clauses begin."""

    pcm: Pcm
    rate_hz: int
    clauses: list[str]
    "Texts of the clauses, as they were written."
    starts: list[int]
    "Sample at which each clause begins."


async def speak(tts: Tts, language: str, voice: str, text: str) -> SpokenText:
    """Speaks a text as a response is spoken."""
    plan = SpeechPlan(tts, language, voice)
    parts, clauses, starts = list[Pcm](), list[str](), list[int]()

    @asynccontextmanager
    async def note(clause: str) -> AsyncIterator[None]:
        clauses.append(clause)
        starts.append(sum(map(len, parts)))
        yield

    synthesis = SpeechSynthesis(plan, clauses_of(single_text(text), language), None, note)
    async with aclosing(synthesis.stream()) as sounds:
        async for pcm in sounds:
            parts.append(pcm)
    return SpokenText(np.concatenate(parts), tts.info.rate_hz, clauses, starts)


def read_back(model: AsrModel, spoken: SpokenText, language: str) -> str:
    """Returns the words that a recogniser hears. The sound is cut at clauses only."""
    asr_options = AsrOptions(language=language)
    limit = ms_to_samples(READ_MS, spoken.rate_hz)
    heard, begin = list[str](), 0
    ends = [*spoken.starts[1:], len(spoken.pcm)]
    for end, after in zip(ends, [*ends[1:], None], strict=True):
        if after is None or after - begin > limit:
            resampler = Resampler(spoken.rate_hz, ASR_RATE_HZ)
            pcm = np.concatenate([resampler.push(spoken.pcm[begin:end]), resampler.flush()])
            item = AsrItem(f"{begin}", pcm, is_final=True, options=asr_options)
            heard.append(model.decode([item])[0].text)
            begin = end
    return " ".join(heard)


def words_of(text: str) -> list[str]:
    """Returns the words of a text in any language, without case and punctuation."""
    kept = "".join(char if char.isalnum() else " " for char in text.lower().replace("'", ""))
    return kept.split()


def row(model: AsrModel, engine: str, voice: str, language: str, spoken: SpokenText) -> list[str]:
    """Returns a voice's row of the table."""
    said = words_of(" ".join(speakable(clause, language) for clause in spoken.clauses))
    heard = words_of(read_back(model, spoken, language))
    rate_hz = spoken.rate_hz
    found, slack = pauses(spoken.pcm, rate_hz), ms_to_samples(LEAST_PAUSE_MS, rate_hz)
    borders = [pause_at(found, start, slack) for start in spoken.starts[1:]]
    inside = [pause for pause in found if pause not in borders and pause[1] - pause[0] >= slack]
    border, other = (jumps(spoken.pcm, rate_hz, places) for places in (borders, inside))
    longest_ms = max(1000 * (end - begin) / rate_hz for begin, end in found)
    return [
        f"{engine} {voice}",
        f"{100 * word_errors(said, heard) / len(said):.1f} % of {len(said)}",
        f"{len(spoken.pcm) / rate_hz:.0f} s",
        f"{loudness_lufs(spoken.pcm, rate_hz):.1f}",
        f"{longest_ms:.0f}",
        f"{border.pause_ms:.0f}; {other.pause_ms:.0f}",
        f"{border.spectrum_db:.0f} ({border.spectrum_p95_db:.0f})",
        f"{other.spectrum_db:.0f} ({other.spectrum_p95_db:.0f})",
        f"{border.level_db:.1f} ({border.level_p95_db:.1f})",
        f"{other.level_db:.1f} ({other.level_p95_db:.1f})",
    ]


HEAD = (
    *("voice", "words wrong", "sound", "LUFS", "longest pause, ms", "pause: border; inside, ms"),
    *("spectrum: border, dB (p95)", "inside", "level: border, dB (p95)", "inside"),
)


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.speech_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, metavar="MODEL_FOLDER")
    parser.add_argument("--voice", action="append", metavar="ENGINE:VOICE")
    parser.add_argument("--option", action="append", default=[], metavar="ENGINE.NAME=VALUE")
    parser.add_argument(
        "--repeat", type=int, default=1, help="how often each text is spoken in a row"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = options(argv)
    print(machine())
    model = load("asr", "faster_whisper", {"model": str(args.model)})
    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    engines: dict[str, Tts] = {}
    rows = []
    for name in args.voice or VOICES:
        engine, _, voice = name.partition(":")
        if engine not in engines:
            own = (one.partition(".")[2] for one in args.option if one.startswith(f"{engine}."))
            engines[engine] = load("tts", engine, dict(one.split("=", 1) for one in own))
        tts = engines[engine]
        language = next(code for code, names in tts.info.voices.items() if voice in names)
        text = " ".join([" ".join(texts[language].split())] * args.repeat)
        spoken = asyncio.run(speak(tts, language, voice, text))
        rows.append(row(model, engine, voice, language, spoken))
    print(markdown(HEAD, rows))
    model.close()


if __name__ == "__main__":
    main()
