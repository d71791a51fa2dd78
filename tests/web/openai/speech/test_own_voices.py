"""`/v1/audio/voices` with voices of one's own, `earshot voices` and WIS's `/api/speaker`: over
HTTP with a real database. The engine stands in for a real one."""

import asyncio
import json
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from aiohttp import ClientSession, FormData

from bench.client.http import Address
from core.errors import ConfigError, RequestError
from devices.registry.database import open_database
from devices.registry.own_voices import OwnVoiceTable
from devices.willow.wis.own_voices import WisSpeakerDoor, speaker_routes
from engines.base import Tts
from media.files.decode import decode_file
from media.files.upload_spool import UploadSpools
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFiles
from pipeline.speech.own_voices import CONSENT, OWN_VOICES, OwnVoices, OwnVoicesTts
from server.commands.voices import command
from server.commands.voices.arguments import add_actions
from server.config.sections.limits import LimitsConfig
from serving.remote.models import RemoteModels
from tests.devices.registry.harness import Moment
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.cloning import RATE_HZ, CloningVoice, recording, wav
from tests.pipeline.fakes import LoudVads, ToneTts
from tests.server.http.harness import error_of, serving
from tests.web.openai.speech.harness import UsualLanguage
from web.indri_completion import IndriCompletionDoor, indri_completion_route
from web.openai.routes import speech_routes
from web.openai.speech.door import SpeechDoor
from web.openai.speech.own_voices import OwnVoicesDoor, own_voice_routes

pytestmark = pytest.mark.live

URL = "/v1/audio/voices"
COMPLETION = "/audio_completion"


def form(data: bytes, *, file: str = "audio_sample", **fields: str) -> FormData:
    made = FormData()
    for name, text in fields.items():
        made.add_field(name, text)
    made.add_field(file, data, filename="voice.wav")
    return made


@asynccontextmanager
async def server(
    folder: Path, *, is_on: bool = True
) -> AsyncIterator[tuple[ClientSession, CloningVoice]]:
    async with open_database(f"sqlite:///{folder}/devices.db") as database:
        table, fake = OwnVoiceTable(database, Moment()), CloningVoice()
        await table.load()
        own = OwnVoices(cast("Any", fake), table) if is_on else None
        tts: dict[str, Tts] = {"default": ToneTts()}
        if is_on:
            tts[OWN_VOICES] = OwnVoicesTts(cast("Any", fake), table)
        engines = EngineSet(LoudVads(), {}, {}, tts)
        limit = LimitsConfig().as_limits().speech
        speech_files = SpeechFiles(engines)
        speech = SpeechDoor(engines, speech_files, UsualLanguage(), limit, RemoteModels())
        spools, decoder = UploadSpools(), ThreadDecoder()
        routes = (
            *speech_routes(speech),
            *own_voice_routes(OwnVoicesDoor(own, spools, decoder)),
            *speaker_routes(WisSpeakerDoor(own, spools, decoder, 10_000_000), upload_errors=()),
            indri_completion_route(IndriCompletionDoor(own, speech_files, spools, decoder, limit)),
        )
        async with serving(routes) as client:
            yield client, fake


def play(
    folder: Path,
    scene: Callable[[ClientSession, CloningVoice], Awaitable[None]],
    *,
    is_on: bool = True,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), server(folder, is_on=is_on) as (client, fake):
            await scene(client, fake)

    asyncio.run(main())


async def own_ids(client: ClientSession) -> list[str]:
    voices = (await (await client.get(URL)).json())["voices"]
    return [voice["id"] for voice in voices if voice["engine"] == OWN_VOICES]


def test_a_voice_is_made_listed_heard_and_deleted(tmp_path: Path) -> None:
    async def scene(client: ClientSession, fake: CloningVoice) -> None:
        fields = {"name": "anna", "consent": CONSENT, "type": "audio_sample", "language": "German"}
        made = await (await client.post(URL, data=form(recording(), **fields))).json()
        assert made == {
            "id": "own/anna",
            "name": "anna",
            "language": "de",
            "consent": CONSENT,
            "created_at": int(Moment().wall().timestamp()),
            "object": "audio.voice",
            "type": "audio_sample",
        }
        assert await own_ids(client) == ["own/anna"]
        body = {"model": "tts-1", "voice": "own/anna", "input": "Hi.", "response_format": "pcm"}
        spoken = await client.post("/v1/audio/speech", json=body)
        assert spoken.status == 200
        assert fake.languages == ["de"]
        for _ in range(2):
            sample = await client.get(f"{URL}/own/anna/sample")
            assert sample.headers["Cache-Control"] == "no-store"
        assert len(fake.languages) == 3  # no sample is kept
        again = await error_of(await client.post(URL, data=form(recording(), **fields)))
        assert again["code"] == "voice_exists"
        deleted = await (await client.delete(f"{URL}/own/anna")).json()
        assert deleted == {"id": "own/anna", "deleted": True, "object": "audio.voice"}
        assert not fake.held
        assert await own_ids(client) == []
        unknown = await client.post("/v1/audio/speech", json=body)
        assert (await error_of(unknown))["code"] == "voice_not_found"
        assert (await client.delete(f"{URL}/own/anna")).status == 404

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("data", "fields", "code", "param"),
    [
        (b"", {}, "unsupported_audio", "audio_sample"),
        (b"no audio at all", {}, "unsupported_audio", "audio_sample"),
        (wav(np.zeros(5 * RATE_HZ, np.int16)), {}, "unsuitable_recording", "audio_sample"),
        (wav(np.zeros(RATE_HZ // 2, np.int16)), {}, "unsuitable_recording", "audio_sample"),
        (wav(np.zeros(40 * RATE_HZ, np.int16)), {}, "unsuitable_recording", "audio_sample"),
        (recording(), {"consent": "yes"}, "consent_required", "consent"),
        (recording(), {"name": "../anna"}, "invalid_value", "name"),
        (recording(), {"name": ""}, "missing_required_parameter", "name"),
        (recording(), {"language": "tlh"}, "unsupported_language", "language"),
        (recording(), {"type": "prompt"}, "invalid_value", "type"),
        (recording(), {"voice": "x"}, "unknown_parameter", "voice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_requests_say_what_is_wrong(
    tmp_path: Path, data: bytes, fields: dict[str, str], code: str, param: str
) -> None:
    async def scene(client: ClientSession, _: CloningVoice) -> None:
        sent = {"name": "anna", "consent": CONSENT, **fields}
        response = await client.post(URL, data=form(data, **sent))
        assert response.status == 400
        error = await error_of(response)
        assert (error["code"], error["param"]) == (code, param)
        assert await own_ids(client) == []

    play(tmp_path, scene)


def test_voices_of_ones_own_are_off_unless_an_engine_is_named(tmp_path: Path) -> None:
    async def scene(client: ClientSession, _: CloningVoice) -> None:
        fields = {"name": "anna", "consent": CONSENT}
        for response in (
            await client.post(URL, data=form(recording(), **fields)),
            await client.delete(f"{URL}/own/anna"),
            await client.post(COMPLETION, params={"text": "Hi."}, data=form(b"", file="file")),
        ):
            assert "tts.own_voices.engine" in (await error_of(response))["message"]
        assert len((await (await client.get("/api/speaker")).json())["speakers"]) == 6

    play(tmp_path, scene, is_on=False)


def test_clients_of_wis_make_list_and_delete_voices(tmp_path: Path) -> None:
    async def scene(client: ClientSession, fake: CloningVoice) -> None:
        asked = {"speaker_name": "anna"}
        data = recording()
        refused = await client.post(
            "/api/speaker", params=asked, data=form(data, file="audio_file")
        )
        error = await error_of(refused)
        assert (refused.status, error["code"]) == (400, "consent_required")
        assert error["message"].endswith(CONSENT)
        made = await client.post(
            "/api/speaker",
            params={**asked, "consent": CONSENT},
            data=form(data, file="audio_file"),
        )
        assert await made.json() == {"message": "Created custom speaker successfully: anna"}
        speakers = (await (await client.get("/api/speaker")).json())["speakers"]
        assert speakers[:2] == ["CLB", "SLT"]
        assert speakers[6:] == ["anna"]
        taken = await client.post(
            "/api/speaker",
            params={"speaker_name": "clb", "consent": CONSENT},
            data=form(data, file="audio_file"),
        )
        assert (await error_of(taken))["param"] == "speaker_name"
        deleted = await client.delete("/api/speaker", params=asked)
        assert await deleted.json() == {"message": "Deleted custom speaker successfully: anna"}
        assert (await client.delete("/api/speaker", params=asked)).status == 404

    play(tmp_path, scene)


def test_a_recording_speaks_once_for_clients_of_indri(tmp_path: Path) -> None:
    async def scene(client: ClientSession, fake: CloningVoice) -> None:
        asked = {"text": "Good morning.", "consent": CONSENT}
        spoken = await client.post(COMPLETION, params=asked, data=form(recording(), file="file"))
        assert (spoken.status, spoken.content_type) == (200, "audio/mpeg")
        assert len(decode_file(await spoken.read())) > 0
        assert json.loads(spoken.headers["x-metrics"])["input_tokens"] == [2]
        assert fake.languages == ["en"]
        assert not fake.held, "nothing is kept"
        assert await own_ids(client) == []

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("data", "query", "code", "param"),
    [
        (recording(), {"consent": ""}, "consent_required", "consent"),
        (recording(), {"text": "a" * 4097}, "string_above_max_length", "text"),
        (recording(), {"text": " "}, "empty_string", "text"),
        (b"no audio at all", {}, "unsupported_audio", "file"),
        (wav(np.zeros(RATE_HZ // 2, np.int16)), {}, "unsuitable_recording", "file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_requests_of_clients_of_indri_are_named(
    tmp_path: Path, data: bytes, query: dict[str, str], code: str, param: str
) -> None:
    async def scene(client: ClientSession, fake: CloningVoice) -> None:
        asked = {"text": "Good morning.", "consent": CONSENT, **query}
        refused = await client.post(COMPLETION, params=asked, data=form(data, file="file"))
        assert refused.status == 400
        error = await error_of(refused)
        assert (error["code"], error["param"]) == (code, param)
        assert not fake.held

    play(tmp_path, scene)


def test_the_command_line_makes_lists_and_deletes_voices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "anna.wav"
    file.write_bytes(recording())

    async def scene(client: ClientSession, _: CloningVoice) -> None:
        address = Address(str(client._base_url).rstrip("/"), None, False)

        async def earshot(*arguments: str) -> None:
            parser = ArgumentParser()
            add_actions(parser)
            await command.run_action(parser.parse_args(arguments), address)

        with pytest.raises(ConfigError, match="--consent"):
            await earshot("add", "anna", str(file))
        await earshot("list")
        await earshot("add", "anna", str(file), "--consent")
        await earshot("list")
        await earshot("delete", "own/anna")
        with pytest.raises(RequestError, match="the key has no voice 'anna'"):
            await earshot("delete", "anna")

    play(tmp_path, scene)
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "the key has no voices of its own",
        "made: own/anna, for en",
        "NAME  ID        LANGUAGE",
        "anna  own/anna  en",
        "deleted: anna",
    ]
