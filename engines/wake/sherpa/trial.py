"""Loads a model with the library in a process of its own, because some files make the library end
its process, and no earlier check finds them.

    python -m engines.wake.sherpa.trial TOKENS ENCODER DECODER JOINER KEYWORDS
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.errors import ConfigError

TRIAL_S = 120.0
"Longest trial. It takes less than a second, and minutes on a device that swaps."
RATE_HZ = 16_000


def open_spotter(tokens: str, encoder: str, decoder: str, joiner: str, threads: int = 1) -> Any:
    """Returns the library's keyword spotter without keywords: each stream brings its own, because
    an error in those raises an exception. Raises ImportError, RuntimeError."""
    import sherpa_onnx

    with TemporaryDirectory(prefix="earshot-wake-") as folder:
        empty = Path(folder) / "keywords.txt"
        empty.write_text("", encoding="utf-8")
        return sherpa_onnx.KeywordSpotter(
            tokens=tokens,
            encoder=encoder,
            decoder=decoder,
            joiner=joiner,
            keywords_file=str(empty),
            num_threads=threads,
        )


def try_model(folder: Path, files: Mapping[str, str], keywords: str) -> None:
    """Loads the model and spots the keywords in silence, in another process. Raises ConfigError if
    the library refuses it. `files`: arguments of `open_spotter`."""
    arguments = [files[name] for name in ("tokens", "encoder", "decoder", "joiner")]
    command = [sys.executable, "-m", "engines.wake.sherpa.trial", *arguments, keywords]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TRIAL_S, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{folder} was not loaded within {TRIAL_S:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[-1] if said else f"exit status {done.returncode}"
        raise ConfigError(f"sherpa-onnx refuses the model in {folder}: {why[-400:]}")


def main(arguments: list[str]) -> None:
    """Runs the trial."""
    tokens, encoder, decoder, joiner, keywords = arguments
    spotter = open_spotter(tokens, encoder, decoder, joiner)
    stream = spotter.create_stream(keywords)
    stream.accept_waveform(RATE_HZ, [0.0] * RATE_HZ)
    while spotter.is_ready(stream):
        spotter.decode_stream(stream)


if __name__ == "__main__":
    main(sys.argv[1:])
