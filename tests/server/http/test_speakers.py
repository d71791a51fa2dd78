"""`/v1/speakers` over HTTP with a real database. The engine has random weights and runs in this
process; voices are buzzes."""

import asyncio
import io
import wave
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from aiohttp import FormData

from bench.client.http import Address
from core.access.named_key import NamedKey
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import SpeakerProfile
from core.errors import ConfigError, NotFound, RequestError
from devices.fleet.directory import PersonProfile
from devices.registry.database import open_database
from devices.registry.speakers import EnrolledSpeakers, VoiceSample
from devices.registry.voice_enrolment import VoiceEnrolment
from engines.base.speaker import SpeakerItem, SpeakerModelInfo, SpeakerResult
from engines.speaker.ge2e import Settings, create
from media.files.upload_spool import UploadSpools
from server.commands.speakers import command
from server.commands.speakers.arguments import add_actions
from server.http.speakers import SpeakersDoor, speaker_routes
from serving.models.registry import ModelRegistry
from serving.speaker.model import add_speaker_models
from serving.speaker.recognition import SpeakerRecognition
from tests.devices.registry.harness import Moment
from tests.engines.speaker.buzz import buzz_pcm
from tests.engines.speaker.random_weights import write_random_model
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.fakes import Counts
from tests.web.client import Client, with_client

pytestmark = pytest.mark.live

URL = "/v1/speakers"


class InProcess:
    """Stands for the worker process of a loaded model."""

    is_ready = True

    def __init__(self, folder: Path) -> None:
        self._model = create(Settings(str(folder)))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> SpeakerModelInfo:
        return self._model.info

    async def warm_up(self) -> None:
        """Needs none."""

    def resident_mb(self) -> float:
        return 0.0

    async def submit(self, item: SpeakerItem, _: object) -> SpeakerResult:
        return self._model.embed([item])[0]


def _form(pcm: Pcm, **fields: str) -> FormData:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((1, 2, ASR_RATE_HZ, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())
    form = FormData()
    for name, text in fields.items():
        form.add_field(name, text)
    form.add_field("file", data.getvalue(), filename="voice.wav")
    return form


def play(
    folder: Path, scene: Callable[[Client], Awaitable[None]], taught: VoiceSample | None = None
) -> None:
    """`taught`: a recording of Ben that the server has already."""
    models = folder / "models"
    write_random_model(models / "Resemblyzer")

    class Later:
        """The parts of the door, which can only be opened in the running loop."""

        people: EnrolledSpeakers
        recognition: SpeakerRecognition

        def __getattr__(self, name: str) -> Any:
            part = self.people if hasattr(EnrolledSpeakers, name) else self.recognition
            return getattr(part, name)

        def count_people(self, key: NamedKey | None, model: str) -> int:
            return self.people.count_people(key, model)

        def profiles(self, key: NamedKey | None, model: str) -> Sequence[SpeakerProfile]:
            return self.people.profiles(key, model)

    later: Any = Later()

    async def use(client: Client) -> None:
        registry = ModelRegistry({"cpu": 1000.0}, Moment(), Counts(), room_setting="asr.memory_mb")
        async with (
            open_database(f"sqlite:///{folder}/devices.db") as database,
            registry.running(),
        ):
            later.people = EnrolledSpeakers(database, Moment())
            found = add_speaker_models(registry, str(models), Moment(), Counts())
            later.recognition = SpeakerRecognition(found, later.people)
            if taught is not None:
                await later.people.add("Ben", taught)
            await scene(client)

    def check(profile: PersonProfile) -> None:
        if profile.voice == "nobody":
            raise RequestError("no such voice", code="voice_not_found", param="audio.output.voice")

    learning = VoiceEnrolment(later, Moment())
    door = SpeakersDoor(later, later, UploadSpools(), ThreadDecoder(), check, learning)
    with_client(speaker_routes(door), use)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has models computed in this process."""

    def pool(process: Any, *_: object) -> InProcess:
        return InProcess(Path(process.folder))

    class Process:
        def __init__(self, load: Any, *_: object, **__: object) -> None:
            self.folder = load.options["model"]

    monkeypatch.setattr("serving.speaker.model.BatchProcess", Process)
    monkeypatch.setattr("serving.speaker.model.SpeakerWorkerPool", pool)


def test_a_voice_is_learned_known_listed_and_forgotten(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        assert await (await client.get(URL)).json() == {"speakers": []}
        nobody = await (await client.post(f"{URL}/try", data=_form(buzz_pcm(3)))).json()
        assert nobody["speaker"] is None
        learned = await (await client.post(URL, data=_form(buzz_pcm(3), name="Anna"))).json()
        again = await (
            await client.post(URL, data=_form(buzz_pcm(3, pitch_hz=141), name="Anna"))
        ).json()
        assert again["speaker"]["id"] == learned["speaker"]["id"]
        assert again["speaker"]["samples"] == 2
        assert learned["quality"]["speech_ms"] >= 2500
        tried = await (await client.post(f"{URL}/try", data=_form(buzz_pcm(3)))).json()
        assert tried["speaker"]["name"] == "Anna"
        assert tried["speaker"]["score"] > 0.95
        listed = await client.get(URL)
        assert listed.headers["Cache-Control"] == "no-store"
        ((entry,),) = (await listed.json()).values()
        assert (entry["name"], entry["samples"]) == ("Anna", 2)
        path = f"{URL}/{entry['id']}"
        assert (await client.delete(path)).status == 204
        assert (await client.delete(path)).status == 404
        forgotten = await (await client.post(f"{URL}/try", data=_form(buzz_pcm(3)))).json()
        assert forgotten["speaker"] is None

    play(tmp_path, scene)


def test_a_voice_that_another_model_has_learned_must_be_taught_again(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        ((ben,),) = (await (await client.get(URL)).json()).values()
        assert (ben["name"], ben["must_teach_again"]) == ("Ben", True)
        tried = await (await client.post(f"{URL}/try", data=_form(buzz_pcm(3)))).json()
        assert (tried["speaker"], tried["threshold"]) == (None, 0.72)
        again = await (await client.post(URL, data=_form(buzz_pcm(3), name="Ben"))).json()
        assert (again["speaker"]["samples"], again["speaker"]["must_teach_again"]) == (2, False)
        tried = await (await client.post(f"{URL}/try", data=_form(buzz_pcm(3)))).json()
        assert tried["speaker"]["name"] == "Ben"

    vector = np.ones(80, np.float32) / np.sqrt(np.float32(80))
    play(tmp_path, scene, VoiceSample("3dspeaker_campplus", vector, 3000))


def test_a_person_has_a_name_and_settings_that_can_be_changed(tmp_path: Path) -> None:
    async def scene(client: Client) -> None:
        anna, ben = [
            (await (await client.post(URL, data=_form(buzz_pcm(3), name=name))).json())["speaker"]
            for name in ("Anna", "Ben")
        ]
        path = f"{URL}/{anna['id']}"

        async def change(body: object, at: str = path) -> tuple[int, Any]:
            answer = await client.patch(at, json=body)
            return answer.status, await answer.json() if answer.ok else await answer.text()

        status, person = await change({"profile": {"voice": "de", "speed": 0.9, "volume": 30}})
        assert (status, person["name"], person["samples"]) == (200, "Anna", 1)
        assert (await change({"name": "Ann", "profile": {"speed": None}}))[0] == 200
        ((ann, _),) = (await (await client.get(URL)).json()).values()
        assert (ann["id"], ann["name"], ann["profile"]) == (
            anna["id"],
            "Ann",
            {
                "voice": "de",
                "language": "",
                "speed": None,
                "instructions": "",
                "volume": 30,
                "follow_voice": False,
            },
        )
        assert await change({"name": "Ben"}) == (400, "speaker_exists")
        assert await change({"name": "<b>"}) == (400, "invalid_value")
        assert await change({"profile": {"voice": "nobody"}}) == (400, "voice_not_found")
        assert await change({"profile": {"volume": 101}}) == (400, "invalid_value")
        assert (await change({"name": "Cleo"}, f"{URL}/spk_0"))[0] == 404
        assert (await (await client.get(URL)).json())["speakers"][1]["name"] == ben["name"]

    play(tmp_path, scene)


def test_the_command_line_teaches_tries_lists_and_forgets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, pitch_hz in (("low", 140), ("same", 141)):
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, ASR_RATE_HZ, 0, "NONE", ""))
            file.writeframes(buzz_pcm(3, pitch_hz=pitch_hz).tobytes())
    low, same = str(tmp_path / "low.wav"), str(tmp_path / "same.wav")

    async def scene(client: Client) -> None:
        address = Address(str(client.make_url("")).rstrip("/"), None, False)

        async def earshot(*arguments: str) -> str:
            parser = ArgumentParser()
            add_actions(parser)
            await command.run_action(parser.parse_args(arguments), address)
            return capsys.readouterr().out

        assert await earshot("list") == "the server knows no voices\n"
        learned = (await earshot("add", "Anna", low, same)).splitlines()
        assert learned[0].startswith("low.wav: learned, ")
        assert learned[1].endswith("; Anna has 2 recordings")
        assert (await earshot("try", low)).startswith("low.wav: Anna (1.00), ")
        assert '"name":"Anna"' in await earshot("try", "--json", low)
        header, anna = (await earshot("list")).splitlines()
        assert header.split() == ["NAME", "ID", "RECORDINGS", "SPEECH", "SINCE", "TELEPHONE"]
        assert anna.split()[0] == "Anna"
        with pytest.raises(NotFound, match="knows no 'Ben'; it knows Anna"):
            await earshot("remove", "Ben")
        with pytest.raises(ConfigError, match="name at least one of --name, --voice"):
            await earshot("set", "Anna")
        with pytest.raises(ConfigError, match="follow_voice: 'yes' is neither 'on' nor 'off'"):
            await earshot("set", "Anna", "--follow-voice", "yes")
        followed = await earshot("set", "Anna", "--follow-voice", "on", "--json")
        assert msgspec.json.decode(followed)["profile"]["follow_voice"] is True
        changed = await earshot("set", "Anna", "--name", "Ann", "--speed", "1.2", "--json")
        assert msgspec.json.decode(changed)["profile"]["speed"] == 1.2
        assert await earshot("set", "Ann", "--speed", "", "--name", "Anna") == "changed: Ann\n"
        numbered = await earshot("set", "Anna", "--telephone", "+49 30 123456,+4940123456")
        assert numbered == "changed: Anna\n"
        assert "+4930123456, +4940123456" in await earshot("list")
        with pytest.raises(RequestError, match="answered 400"):
            await earshot("set", "Anna", "--telephone", "030 123456")
        assert await earshot("set", "Anna", "--telephone", "") == "changed: Anna\n"
        assert "+49" not in await earshot("list")
        with pytest.raises(ConfigError, match=r"nothing\.wav: No such file"):
            await earshot("try", str(tmp_path / "nothing.wav"))
        assert (await earshot("allow", "--minutes", "2")).startswith("voices may be learned until")
        with pytest.raises(RequestError, match="answered 400"):
            await earshot("allow", "--minutes", "61")
        assert await earshot("remove", "Anna") == "forgotten: Anna\n"
        assert (await earshot("try", low)).startswith("low.wav: a guest, ")

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (lambda: _form(buzz_pcm(1), name="Anna"), "too_little_speech"),
        (lambda: _form(np.zeros(3 * ASR_RATE_HZ, np.int16), name="Anna"), "too_little_speech"),
        (lambda: _form(buzz_pcm(3)), "missing_required_parameter"),
        (lambda: _form(buzz_pcm(3), name=" "), "missing_required_parameter"),
        (lambda: _form(buzz_pcm(3), name="<b>"), "invalid_value"),
        (lambda: _form(buzz_pcm(3), name="Anna", age="5"), "unknown_parameter"),
    ],
)
def test_what_cannot_be_learned_is_refused(
    tmp_path: Path, form: Callable[[], FormData], code: str
) -> None:
    async def scene(client: Client) -> None:
        refused = await client.post(URL, data=form())
        assert (refused.status, await refused.text()) == (400, code)
        assert await (await client.get(URL)).json() == {"speakers": []}

    play(tmp_path, scene)
