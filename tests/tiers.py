"""Which tests are unit tests: no process, no socket, no browser, no model, and fast.

Whatever is not listed here is one, and is held to it: see `conftest.py`.
"""

import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.shared import ROOT

NOT_UNIT = (
    "bench/test_asr_to_server.py",
    "bench/test_capacity.py",
    "bench/test_menu.py",
    "bench/test_overlaps.py",
    "bench/test_peers_talkers.py",
    "bench/test_peers_voice_lines.py",
    "bench/test_random_whisper.py",
    "bench/test_spoken.py",
    "bench/test_talk.py",
    "bench/test_talk_mic.py",
    "bench/test_talk_to_server.py",
    "bench/test_voice.py",
    "bench/test_voice_to_server.py",
    "bench/test_xiaozhi.py",
    "clients",
    "devices/api/test_command.py",
    "devices/api/test_door.py",
    "devices/api/test_watching.py",
    "devices/registry",
    "devices/home_assistant/test_client.py",
    "devices/home_assistant/test_mcp_tools.py",
    "devices/home_assistant/test_reach.py",
    "devices/home_assistant/test_sentences.py",
    "devices/test_profiles.py",
    "devices/willow/test_assistant.py",
    "devices/willow/test_calls.py",
    "devices/willow/test_chat_socket.py",
    "devices/willow/test_chatbot.py",
    "devices/willow/test_speaking.py",
    "devices/willow/test_speech_to_speech.py",
    "devices/willow/test_upload.py",
    "devices/willow/test_upload_limits.py",
    "devices/willow/test_whisper.py",
    "devices/willow/test_wis_clients.py",
    "devices/willow_was",
    "devices/wyoming",
    "devices/xiaozhi",
    "e2e",
    "engines/test_contract.py",
    "engines/test_espeak.py",
    "engines/test_espeak_words.py",
    "engines/test_faster_whisper.py",
    "engines/test_home_tool.py",
    "engines/test_hybrid.py",
    "engines/test_intents.py",
    "engines/test_intents_threads.py",
    "engines/test_joining.py",
    "engines/test_intents_languages.py",
    "engines/test_intents_phrases.py",
    "engines/test_intents_sounds.py",
    "engines/test_openai.py",
    "engines/test_openai_length.py",
    "engines/test_openai_limits.py",
    "engines/test_openai_thinking.py",
    "engines/test_openai_wishes.py",
    "engines/test_openai_to_transformers_real.py",
    "engines/test_openai_failures.py",
    "engines/test_openai_speech.py",
    "engines/test_piper_kokoro.py",
    "engines/test_pocketsphinx.py",
    "engines/test_pocketsphinx_recordings.py",
    "engines/test_registry.py",
    "engines/test_stoppable.py",
    "engines/test_transformers.py",
    "engines/test_silero.py",
    "engines/test_smart_turn.py",
    "engines/test_vad.py",
    "engines/test_wake.py",
    "engines/test_vllm_process.py",
    "engines/test_vllm_real.py",
    "engines/test_whisper_accuracy.py",
    "engines/test_whisper_device.py",
    "engines/test_whisper_features.py",
    "engines/test_whisper_options.py",
    "engines/test_whisper_parity.py",
    "engines/test_worker.py",
    "engines/whisper_torch",
    "firmware_protocol/test_c_builds.py",
    "firmware_protocol/test_c_client.py",
    "firmware_protocol/test_c_host_client.py",
    "fuzz",
    "homeassistant",
    "integration",
    "media/test_dtls_failure.py",
    "media/test_echo_rooms.py",
    "media/test_ice_gather.py",
    "media/test_ice_paths.py",
    "media/test_loopback_jitter.py",
    "media/test_peer.py",
    "media/test_quality.py",
    "media/test_sdp_bombs.py",
    "media/test_short_path.py",
    "network",
    "pipeline/mcp",
    "pipeline/test_echo_answers.py",
    "pipeline/test_soak.py",
    "pipeline/test_speech_evidence.py",
    "pipeline/test_text_language.py",
    "pipeline/test_turn_ends.py",
    "repo",
    "server/test_announce_live.py",
    "server/test_doctor_probes.py",
    "server/test_access.py",
    "server/test_edge.py",
    "server/test_http_connection.py",
    "server/test_engines_command.py",
    "server/test_health.py",
    "server/test_listeners.py",
    "server/models/test_command.py",
    "server/models/test_convert.py",
    "server/models/test_pull.py",
    "server/models/test_voices.py",
    "server/test_replay.py",
    "server/test_reverse_proxy.py",
    "server/test_serve.py",
    "server/test_tools.py",
    "serving/test_decoder.py",
    "serving/test_hardware.py",
    "serving/test_process.py",
    "serving/test_process_loading.py",
    "serving/test_served.py",
    "signaling/test_aside.py",
    "signaling/test_calls.py",
    "signaling/test_lost_calls.py",
    "signaling/test_mcp.py",
    "signaling/test_mcp_calls.py",
    "signaling/test_mcp_refused.py",
    "signaling/test_mcp_spoken.py",
    "signaling/test_offers.py",
    "signaling/test_prompts.py",
    "signaling/test_quality.py",
    "signaling/test_secrets.py",
    "signaling/test_silent_asides.py",
    "signaling/test_silent_clients.py",
    "signaling/test_stock_client.py",
    "signaling/test_whip.py",
    "signaling/test_whip_bad_input.py",
    "signaling/test_whip_browser.py",
    "signaling/test_whip_events.py",
    "signaling/test_whip_restart.py",
    "signaling/test_websocket.py",
    "soak",
    "web/test_conversation.py",
    "web/test_device_update.py",
    "web/test_devices.py",
    "web/test_engines.py",
    "web/test_interruptions.py",
    "web/test_lost_server.py",
    "web/test_reconnection.py",
    "web/test_streaming.py",
    "web/test_home.py",
    "web/test_page.py",
    "web/test_page_live.py",
    "web/test_quality.py",
    "web/openai/test_bad_input.py",
    "web/openai/test_broken_forms.py",
    "web/openai/test_door.py",
    "web/openai/test_leaving.py",
    "web/openai/test_sdk.py",
    "web/openai/test_server.py",
    "web/openai/test_speech.py",
    "web/openai/test_speech_sdk.py",
    "web/openai/test_whisper_service.py",
)

MUCH_SOUND = (
    "bench/test_noisy.py",
    "media/test_echo.py",
    "media/test_echo_parts.py",
    "media/test_encode.py",
    "media/test_files.py",
    "media/test_opus.py",
    "media/test_raw.py",
    "media/test_resample.py",
    "media/test_tracks.py",
    "pipeline/test_recording.py",
    "pipeline/test_wake.py",
    "signaling/test_input_rate.py",
)
"Seconds to minutes of sound through codecs: as shut in as unit tests, not as quick."

WHOLE_SESSIONS = (
    "pipeline/test_client_tools.py",
    "pipeline/test_coming.py",
    "pipeline/test_echo_path.py",
    "pipeline/test_idle.py",
    "pipeline/test_interruption.py",
    "pipeline/test_items.py",
    "pipeline/test_joining.py",
    "pipeline/test_moments.py",
    "pipeline/test_no_speech.py",
    "pipeline/test_plugin_errors.py",
    "pipeline/test_reporting.py",
    "pipeline/test_sayings.py",
    "pipeline/test_seats.py",
    "pipeline/test_session.py",
    "pipeline/test_sounding.py",
    "pipeline/test_speculation.py",
    "pipeline/test_transcription.py",
    "pipeline/test_turn_evidence.py",
    "server/test_replay_sessions.py",
)
"Minutes of conversation in virtual time, with every part of a session: no unit, as shut in."

UNIT_CPU_S = 10.0
"Of processor time for all unit tests: what else the machine does counts little."

UNIT_S = 30.0
"By the clock, on a busy machine; a test that waits shows here."

SECOND_TRIES = 4
"""A test in real time may fail once for what else the machine does; more than this many in one
run is no accident (ADR 23). Unit tests get none: nothing about them is left to chance."""


_TESTS = ROOT / "tests"
_NOT_UNIT = frozenset(_TESTS / one for one in NOT_UNIT)
_WHOLE = frozenset(_TESTS / one for one in (*MUCH_SOUND, *WHOLE_SESSIONS))


@cache
def is_unit(file: Path) -> bool:
    """Whether the tests of this file are unit tests, if they are quick."""
    places = (file, *file.parents)
    return _TESTS in places and _NOT_UNIT.isdisjoint(places)


def takes_much(item: pytest.Item) -> bool:
    """Hypothesis's tests, much sound, whole sessions and those marked so."""
    is_hypothesis = hasattr(getattr(item, "obj", None), "hypothesis")
    is_marked = item.get_closest_marker("many") is not None
    return is_hypothesis or is_marked or item.path in _WHOLE


def shut_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process or socket fails the test."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a unit test uses no process and no socket; else list it in tests/tiers.py")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for name in ("bind", "connect", "listen"):
        monkeypatch.setattr(socket.socket, name, refuse)


def too_slow(cpu_s: float, wall_s: float) -> str:
    """What is wrong with such a run of all unit tests; empty when nothing is."""
    if cpu_s > UNIT_CPU_S:
        return f"the unit tests took {cpu_s:.1f} s of processor time; the limit is {UNIT_CPU_S:g} s"
    if wall_s > UNIT_S:
        return f"the unit tests took {wall_s:.1f} s; the limit is {UNIT_S:g} s"
    return ""


def too_flaky(tried_again: Sequence[str]) -> str:
    """What is wrong with a run in which these tests were tried again; empty when nothing is."""
    if len(tried_again) <= SECOND_TRIES:
        return ""
    names = ", ".join(tried_again)
    return f"{len(tried_again)} tests needed a second try; the limit is {SECOND_TRIES}: {names}"
