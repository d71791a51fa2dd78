"""Starts a peer as its users do; runs in the peer's environment, by its interpreter.

    python run_peer.py wyoming|whisper-live|bare --model FOLDER --port PORT --threads N

One thing is changed: decoding is greedy, at temperature 0 only and without timestamps, as in
Earshot for the comparison. With random weights the peers' fallback would decode most clips six
times.
"""

import argparse
import json
import os
import socketserver
import sys
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

HOST = "127.0.0.1"
RATE_HZ = 16_000
MAX_BYTES = 60 * RATE_HZ * 2
"Limit of a request: a minute of audio, more than any clip."


def decode_alike(module: str) -> Any:
    """Patches the module's WhisperModel so that every call decodes in the same way; returns it."""
    model = import_module(module).WhisperModel
    transcribe = model.transcribe

    def alike(self: object, audio: object, **options: object) -> Any:
        same = {"beam_size": 1, "temperature": 0.0, "without_timestamps": True}
        return transcribe(self, audio, **{**options, **same})

    model.transcribe = alike
    return model


def wyoming(options: argparse.Namespace) -> None:
    """Runs wyoming-faster-whisper."""
    decode_alike("faster_whisper")
    sys.argv = [
        "wyoming-faster-whisper",
        *("--uri", f"tcp://{HOST}:{options.port}"),
        *("--model", options.model, "--data-dir", str(Path(options.model).parent)),
        *("--stt-library", "faster-whisper", "--language", "en", "--local-files-only"),
        *("--compute-type", "int8", "--beam-size", "1", "--cpu-threads", str(options.threads)),
    ]
    import_module("wyoming_faster_whisper.__main__").run()


def whisper_live(options: argparse.Namespace) -> None:
    """Runs WhisperLive. On a CPU it computes in int8, whatever is configured."""
    decode_alike("whisper_live.transcriber.transcriber_faster_whisper")
    import_module("whisper_live.server").TranscriptionServer().run(
        HOST,
        port=options.port,
        backend="faster_whisper",
        faster_whisper_custom_model_path=options.model,
        single_model=True,
        max_clients=64,
        batch_enabled=True,
        # Its limits on new clients would refuse clients that connect for each utterance.
        batch_max_admissions_per_s=1000.0,
        batch_max_queue_wait_s=60.0,
    )


def bare(options: argparse.Namespace) -> None:
    """Runs faster-whisper behind a socket.

    A request is four bytes of length and that many bytes of 16 kHz PCM; the answer is a line of
    JSON.
    """
    numpy = import_module("numpy")
    model = decode_alike("faster_whisper")(
        options.model, device="cpu", compute_type="int8", cpu_threads=options.threads
    )

    class BareHandler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            size = int.from_bytes(self.rfile.read(4), "big")
            if not 0 < size <= MAX_BYTES:
                return
            pcm = numpy.frombuffer(self.rfile.read(size), "<i2").astype("float32") / 32768
            segments, _ = model.transcribe(pcm, language="en")
            text = " ".join(segment.text.strip() for segment in segments)
            self.wfile.write(json.dumps({"text": text}).encode() + b"\n")

    class BareServer(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        request_queue_size = 64
        daemon_threads = True

    with BareServer((HOST, options.port), BareHandler) as server:
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=("wyoming", "whisper-live", "bare"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    start = {"wyoming": wyoming, "whisper-live": whisper_live, "bare": bare}[options.peer]
    # The parent process holds our stdin open: when it ends, so does this process.
    Thread(target=leave_with_parent, daemon=True).start()
    start(options)


def leave_with_parent() -> None:
    """Ends this process when its stdin is closed."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
