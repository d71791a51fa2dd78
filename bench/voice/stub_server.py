"""Configuration of a server whose engines take fixed times, to measure the rest of the server."""

from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

MAX_MS = 10_000
"Longest delay of an engine."


@dataclass(frozen=True, slots=True)
class StubDelays:
    """Delay of each engine, in ms."""

    asr_ms: float
    "Time of a final decode."
    llm_ms: float
    "Time to the first token."
    tts_ms: float
    "Time to the first audio."

    @property
    def total_ms(self) -> float:
        """Sum of the three times."""
        return self.asr_ms + self.llm_ms + self.tts_ms

    def __str__(self) -> str:
        return f"{self.asr_ms:g}/{self.llm_ms:g}/{self.tts_ms:g}"

    def write(self, folder: Path) -> Path:
        """Writes the configuration file of a server with these engines and returns its path."""
        times = {"asr": self.asr_ms, "llm": self.llm_ms, "tts": self.tts_ms}
        lines = []
        for kind, delay_ms in times.items():
            lines += [f"[{kind}]", f'engine = "bench.server.stub_engines.{kind}"']
            lines += [f"[{kind}.options]", f"delay_ms = {delay_ms}"]
        file = folder / "stubs.toml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file


def parse_stub_delays(text: str) -> StubDelays:
    """Parses the argument `ASR,LLM,TTS` in ms. Raises ArgumentTypeError."""
    try:
        asr_ms, llm_ms, tts_ms = map(float, text.split(","))
    except ValueError:
        raise ArgumentTypeError("must be three times in ms, as 50,150,80") from None
    if not all(0 <= ms <= MAX_MS for ms in (asr_ms, llm_ms, tts_ms)):
        raise ArgumentTypeError(f"must be 0 to {MAX_MS} ms each")
    return StubDelays(asr_ms, llm_ms, tts_ms)
