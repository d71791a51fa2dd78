"""Output of `earshot talk`: words as they change, then the turn and its times."""

import shutil
from dataclasses import asdict, dataclass
from typing import TextIO

import msgspec

from bench.client.connection_stats import ConnectionReport
from bench.client.conversation import TurnReport
from bench.client.turn import TurnLog

CLEAR_LINE = "\r\x1b[K"
FAINT, PLAIN = "\x1b[2m", "\x1b[0m"

STAGE_NAMES = {
    "endpoint_wait": "endpoint wait",
    "asr": "recognition",
    "llm": "language model",
    "tts": "voice",
    "playout": "playout",
}

_STATUS_TEXTS = {
    "rejected": "(taken for noise: no answer)",
    "cancelled": "(the answer was cut short)",
    "unanswered": "(no answer)",
    "failed": "(the turn failed)",
    "answered": "",
}


@dataclass(slots=True)
class TerminalOutput:
    """Shows partial transcripts: on a terminal in one line that changes, elsewhere one line per
    change."""

    out: TextIO
    is_terminal: bool
    is_quiet: bool = False
    "True: only transcript and answer are shown."
    _shown: str = ""

    def change(self, log: TurnLog) -> None:
        """Shows the words so far, if they changed."""
        words = f"{log.stable} {log.unstable}".strip()
        if self.is_quiet or not words or words == self._shown:
            return
        self._shown = words
        if not self.is_terminal:
            print(f"  ... {words}", file=self.out, flush=True)
            return
        room = shutil.get_terminal_size().columns - len("  ... ") - 1
        if len(words) > room:
            line = words[-room:]
        else:
            line = f"{log.stable}{FAINT}{words[len(log.stable) :]}{PLAIN}"
        print(f"{CLEAR_LINE}  ... {line}", end="", file=self.out, flush=True)

    def line(self, text: str) -> None:
        """Prints a line about the progress."""
        if not self.is_quiet:
            print(text, file=self.out, flush=True)

    def report(self, report: TurnReport) -> None:
        """Prints the result of a turn."""
        if self.is_terminal and self._shown:
            print(CLEAR_LINE, end="", file=self.out)
        self._shown = ""
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


def times(report: TurnReport) -> list[str]:
    """Returns the turn's times at the client, and those that the server reported."""
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
    """Returns one line of JSON: all fields without the audio, and the quality of the connection."""
    fields: dict[str, object] = {**asdict(report), "connection": asdict(quality)}
    del fields["audio"]
    return msgspec.json.encode(fields).decode()


def _time(name: str, value_ms: float | None, what: str) -> str:
    return "" if value_ms is None else f"{name} {value_ms:.0f} ms{what}"
