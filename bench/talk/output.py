"""Output of `earshot talk`: the microphone's level and words as they change, then the turn and its
times."""

import shutil
from dataclasses import asdict, dataclass
from typing import TextIO

import msgspec

from bench.client.connection_stats import ConnectionReport
from bench.client.conversation import TurnReport
from bench.client.microphone import RATE_HZ
from bench.client.turn import TurnLog
from core.audio import Pcm, ms_to_samples
from core.terminal import CLEAR_LINE, styled
from media.pcm import SILENCE_DBFS, dbfs

METER_WIDTH = 10
"Characters of the level meter."
METER_FLOOR_DBFS = -60.0
"Level at which the meter is empty: below it is the noise of a microphone in a quiet room."
METER_SAMPLES = ms_to_samples(100, RATE_HZ)
"Sound between two drawings of the meter. It shows the loudest part of it."

STAGE_NAMES = {
    "endpoint_wait": "endpoint wait",
    "asr": "recognition",
    "llm": "language model",
    "tts": "voice",
    "playout": "playout",
}
"Stage of a turn -> its name for people."

_STATUS_TEXTS = {
    "rejected": "(taken for noise: no answer)",
    "cancelled": "(the answer was cut short)",
    "unanswered": "(no answer)",
    "failed": "(the turn failed)",
    "answered": "",
}


@dataclass(slots=True)
class TerminalOutput:
    """Shows partial transcripts: on a terminal in one line that changes, with the level of the
    microphone if there is one, elsewhere one line per change."""

    out: TextIO
    is_terminal: bool
    "True: partial transcripts overwrite one line. False: each gets its own line."
    is_quiet: bool = False
    "True: only transcript and answer are shown."
    _words: str = ""
    "Words that are shown."
    _stable_length: int = 0
    "Characters of them that will not change."
    _meter: str = ""
    _loudest_dbfs: float = SILENCE_DBFS
    _heard_samples: int = 0
    "Sound since the meter was drawn."

    def change(self, log: TurnLog) -> None:
        """Shows the partial transcript, if it changed."""
        words = f"{log.stable} {log.unstable}".strip()
        if self.is_quiet or not words or words == self._words:
            return
        self._words, self._stable_length = words, len(log.stable)
        if self.is_terminal:
            self._draw()
        else:
            print(f"  ... {words}", file=self.out, flush=True)

    def hear(self, pcm: Pcm) -> None:
        """Shows on a terminal how loud the microphone is. `pcm`: its next sound."""
        if self.is_quiet or not self.is_terminal:
            return
        self._loudest_dbfs = max(self._loudest_dbfs, dbfs(pcm))
        self._heard_samples += len(pcm)
        if self._heard_samples >= METER_SAMPLES:
            self._meter = _meter(self._loudest_dbfs)
            self._loudest_dbfs, self._heard_samples = SILENCE_DBFS, 0
            self._draw()

    def line(self, text: str) -> None:
        """Prints a line about the progress."""
        if not self.is_quiet:
            self.clear()
            print(text, file=self.out, flush=True)

    def clear(self) -> None:
        """Removes the line that changes, so that other text may follow."""
        if self.is_terminal and (self._words or self._meter):
            print(CLEAR_LINE, end="", file=self.out, flush=True)
        self._words = self._meter = ""

    def _draw(self) -> None:
        begin = f"  {self._meter or '...'} "
        room = shutil.get_terminal_size().columns - len(begin) - 1
        if len(self._words) > room:
            words = self._words[-room:]
        elif self._words:
            end = self._stable_length
            words = f"{self._words[:end]}{styled(self._words[end:], 'faint')}"
        else:
            words = ""
        print(f"{CLEAR_LINE}{begin}{words}", end="", file=self.out, flush=True)

    def report(self, report: TurnReport) -> None:
        """Prints the result of a turn."""
        self.clear()
        status_text = _STATUS_TEXTS[report.status]
        if report.status == "unanswered" and not report.transcript:
            status_text = "(no answer: the server detected no speech)"
        answer = " ".join(filter(None, (report.reply, status_text, report.error)))
        if report.transcript:
            print(f"  you:     {report.transcript}", file=self.out)
        print(f"  answer:  {answer}", file=self.out, flush=True)
        if not self.is_quiet:
            for line in times(report):
                print(line, file=self.out, flush=True)


def _meter(level_dbfs: float) -> str:
    filled = round(METER_WIDTH * min(max(1 - level_dbfs / METER_FLOOR_DBFS, 0), 1))
    return f"[{'#' * filled}{'.' * (METER_WIDTH - filled)}]"


def times(report: TurnReport) -> list[str]:
    """Returns two lines: the turn's times at the client, and those that the server reported."""
    lines = []
    own = [
        _voice_to_voice(report),
        _time("first words", report.first_words_ms, " after you began"),
        _time("transcript", report.transcript_ms, " after you ended"),
    ]
    if any(own):
        lines.append(f"  here:    {', '.join(filter(None, own))}")
    if report.stages:
        stages = " + ".join(
            f"{STAGE_NAMES.get(stage.name, stage.name)} {stage.took_ms:.0f}"
            for stage in report.stages
        )
        total = "" if report.server_ms is None else f" = {report.server_ms:.0f} ms"
        lines.append(f"  server:  {stages}{total}")
    return lines


def _voice_to_voice(report: TurnReport) -> str:
    took_ms = report.voice_to_voice_ms
    if not report.transcript:
        return _time("text to voice", took_ms, "")
    if not report.is_end_known:
        return "voice to voice not known (sound goes on after the speech)"
    if took_ms is not None and took_ms < 0:
        return f"answered {-took_ms:.0f} ms before you ended"
    return _time("voice to voice", took_ms, "")


def to_json(report: TurnReport, quality: ConnectionReport) -> str:
    """Returns one line of JSON: the report without its audio, and the connection's quality."""
    fields: dict[str, object] = {**asdict(report), "connection": asdict(quality)}
    del fields["audio"]
    return msgspec.json.encode(fields).decode()


def _time(name: str, value_ms: float | None, suffix: str) -> str:
    return "" if value_ms is None else f"{name} {value_ms:.0f} ms{suffix}"
