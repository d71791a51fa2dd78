# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
"""`speech-to-speech serve` with stub engines; runs in speech-to-speech's environment.

    python run_speech_to_speech.py --port PORT --wait MS --stubs ASR,LLM,TTS --hold MS

STT, LLM and TTS are subclasses of its own base classes, put into its own registries of backends.
Everything between them, and the Realtime API over WebSocket, is its own. Two downloads are
replaced: Silero's weights come from the package `silero-vad`, and a pattern stands for NLTK's model
that splits sentences. It is imported inside of functions, so that Earshot's checks can read this
file without it.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any

import numpy as np

RATE_HZ = 16_000
TONE_MS, TONE_HZ, LEVEL = 400, 500, 8000
FRAME = 320
WORDS = "turn on the kitchen lights"
ANSWER = "All the lights in the kitchen are on now."
STUB = "stub"


@dataclass
class StubArguments:
    """Command line arguments of a stub backend: none."""


def stub_stt(context: Any, delay_s: float) -> Any:
    from speech_to_speech.pipeline.messages import PartialTranscription, Transcription
    from speech_to_speech.STT.base_stt_handler import BaseSTTHandler

    class S2sStubStt(BaseSTTHandler):
        def process(self, vad_audio: Any) -> Iterator[Any]:
            turn = {"turn_id": vad_audio.turn_id, "turn_revision": vad_audio.turn_revision}
            if vad_audio.mode == "progressive":
                yield PartialTranscription(text=WORDS, **turn)
                return
            time.sleep(delay_s)
            self._record_final_stt(vad_audio, delay_s)
            stopped = {"speech_stopped_at_s": vad_audio.speech_end_at_s}
            yield Transcription(text=WORDS, language_code="en", **turn, **stopped)

    made = S2sStubStt(context.stop_event, context.queue_in, context.queue_out)
    made.speculative_turns = context.speculative_turns
    return made


def stub_llm(context: Any, delay_s: float) -> Any:
    from speech_to_speech.LLM import base_openai_compatible_language_model as base

    class S2sStubLlm(base.BaseOpenAICompatibleHandler):
        def warmup(self) -> None: ...

        def _build_compaction_generate_fn(self) -> Any:
            return lambda _system, _user: ""

        def _serialize(self, active_chat: Any) -> Any:
            return active_chat.to_transformers_chat()

        def _build_optional_kwargs(self, _tools: Any, _choice: Any) -> dict[str, Any]:
            return {}

        def _request(self, _input: Any, _optional: dict[str, Any]) -> Any:
            return ANSWER.split()

        def _iter_stream_events(self, api_response: Any) -> Iterator[Any]:
            time.sleep(delay_s)
            for word in api_response:
                yield base.TextDelta(text=f"{word} ")
            yield base.ProviderResponseEnd()

        def _iter_response_events(self, api_response: Any) -> Iterator[Any]:
            yield from self._iter_stream_events(api_response)

    base.sent_tokenize = sentences
    turns = {"cancel_scope": context.cancel_scope, "speculative_turns": context.speculative_turns}
    # Its HTTP client is made but never used.
    setup = {"api_key": "none", "base_url": "http://127.0.0.1:9/v1", **turns}
    queues = (context.stop_event, context.queue_in, context.queue_out)
    return S2sStubLlm(*queues, setup_kwargs=setup)


def stub_tts(context: Any, delay_s: float) -> Any:
    from speech_to_speech.baseHandler import BaseHandler
    from speech_to_speech.pipeline.messages import AUDIO_RESPONSE_DONE, EndOfResponse

    time_s = np.arange(TONE_MS * RATE_HZ // 1000) / RATE_HZ
    tone = (LEVEL * np.cos(2 * np.pi * TONE_HZ * time_s)).astype(np.int16)
    turns = context.speculative_turns

    class S2sStubTts(BaseHandler):
        cancel_scope = context.cancel_scope

        def process(self, tts_input: Any) -> Iterator[Any]:
            """Works as its own handlers do: no audio is sent before the turn's gate is open."""
            turn = (tts_input.turn_id, tts_input.turn_revision)
            if isinstance(tts_input, EndOfResponse):
                if turns.wait_for_gate(*turn):
                    yield AUDIO_RESPONSE_DONE
            elif turns.wait_for_gate(*turn, commit=True):
                time.sleep(delay_s)
                for start in range(0, len(tone), FRAME):
                    yield tone[start : start + FRAME]

    return S2sStubTts(context.stop_event, context.queue_in, context.queue_out)


def sentences(text: str) -> list[str]:
    """Replaces NLTK's `sent_tokenize`, whose weights would be a download."""
    return [part for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]


def main(options: argparse.Namespace) -> None:
    registry = import_module("speech_to_speech.backend_registry")
    kinds = {
        "stt": (registry.STT_BACKENDS, stub_stt),
        "llm": (registry.LLM_BACKENDS, stub_llm),
        "tts": (registry.TTS_BACKENDS, stub_tts),
    }
    times = (float(ms) / 1000 for ms in options.stubs.split(","))
    for (kind, (backends, make)), delay_s in zip(kinds.items(), times, strict=True):

        def create(context: Any, _: Any, make: Any = make, delay_s: float = delay_s) -> Any:
            return make(context, delay_s)

        no_options: dict[str, Any] = {"normalize_config": lambda _: {}}
        backends[STUB] = registry.BackendSpec(STUB, kind, StubArguments, create, **no_options)
    weights = import_module("silero_vad").load_silero_vad()
    import_module("torch").hub.load = lambda *_, **__: (weights, None)
    command = ["--stt", STUB, "--llm_backend", STUB, "--tts", STUB]
    command += ["--port", str(options.port), "--log_level", "warning", "--no_smart_turn"]
    command += ["--min_silence_ms", str(int(options.wait))]
    command += ["--speculative_reopen_ms", str(int(options.hold))]
    # Its arguments list the backends at import, so it is imported only now.
    import_module("speech_to_speech.s2s_pipeline").run_pipeline_command("serve", command)


def leave_with_parent() -> None:
    """Ends this process when its stdin is closed."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--wait", type=float, required=True)
    parser.add_argument("--hold", type=float, default=0)
    parser.add_argument("--stubs", required=True)
    # The parent process holds our stdin open: when it ends, so does this process.
    Thread(target=leave_with_parent, daemon=True).start()
    main(parser.parse_args())
