"""The profile of a device at every API with profiles: what reaches the language model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from devices.fleet.directory import DeviceProfile, SessionEcho
from devices.xiaozhi.settings import XiaozhiSettings
from media.processing.modes import EchoMode
from pipeline.shared.settings import SessionSettings
from tests.devices.willow.was import servers as was
from tests.devices.xiaozhi import servers as xiaozhi
from tests.pipeline.fakes import EchoLlm

pytestmark = pytest.mark.live

USUAL = SessionSettings(
    instructions="Be brief.", answer_temperature=0.3, voice="low", echo="off", tools=None
)

BOARDS_OWN = {"self_get_device_status", "self_audio_speaker_set_volume"}


@dataclass(frozen=True)
class Seen:
    """The arguments of a model call."""

    system: str
    "Its first line: which room it is comes behind."
    temperature: float | None
    tools: frozenset[str]


def seen(llm: EchoLlm) -> Seen:
    """Returns the arguments of the last round."""
    (said,) = (one.text for one in llm.asked[-1] if one.role == "system")
    tools = frozenset(one.name for one in llm.tools_asked[-1])
    return Seen(said.partition("\n")[0], llm.options_asked[-1].temperature, tools)


def asked_by_xiaozhi(profile: DeviceProfile) -> Seen:
    settings = XiaozhiSettings(networks=xiaozhi.LOOPBACK, initial_settings=lambda: USUAL)
    scene = xiaozhi.Scene(settings=settings)

    async def act(server: xiaozhi.Server) -> None:
        board = server.board()
        await board.boot()
        scene.directory.change(board.mac, profile=profile)
        await board.open()
        await board.turn("one")
        await board.hang_up()

    xiaozhi.against(act, scene)
    return seen(scene.llm)


def asked_by_willow(profile: DeviceProfile) -> Seen:
    scene = was.Scene(default_settings=USUAL)

    async def act(server: was.Server) -> None:
        device = await server.device()
        server.known.change(was.mac_of(device), profile=profile)
        await server.until(lambda: server.door.connected_devices.all()[0].device.profile == profile)
        assert (await device.speak(was.SPEECH)).ok

    was.against(act, scene)
    return seen(scene.inference.llm)


@pytest.mark.parametrize(
    ("asked", "every_tool"),
    [(asked_by_xiaozhi, BOARDS_OWN | {"add"}), (asked_by_willow, {"add"})],
)
@pytest.mark.parametrize(
    ("profile", "system", "temperature", "tools"),
    [
        (DeviceProfile(), "Be brief.", 0.3, None),
        (
            DeviceProfile(instructions="Be a pirate.", answer_temperature=0.0, tools=()),
            "Be a pirate.",
            0.0,
            set(),
        ),
        (DeviceProfile(answer_temperature=1.5, tools=("add",)), "Be brief.", 1.5, {"add"}),
        (DeviceProfile(tools=("set_timer",)), "Be brief.", 0.3, set()),
    ],
)
def test_a_profile_reaches_the_language_model(
    asked: Callable[[DeviceProfile], Seen],
    every_tool: set[str],
    profile: DeviceProfile,
    system: str,
    temperature: float,
    tools: set[str] | None,
) -> None:
    offered = frozenset(every_tool if tools is None else tools)
    assert asked(profile) == Seen(system, temperature, offered)


@pytest.mark.parametrize(("given", "expected"), [("", "off"), ("cancel", "cancel")])
def test_echo_cancellation_is_set_per_board(given: SessionEcho, expected: EchoMode) -> None:
    settings = XiaozhiSettings(networks=xiaozhi.LOOPBACK, initial_settings=lambda: USUAL)
    scene = xiaozhi.Scene(settings=settings)

    async def act(server: xiaozhi.Server) -> None:
        board = server.board()
        await board.boot()
        scene.directory.change(board.mac, profile=DeviceProfile(echo=given))
        await board.open()
        await board.turn("one")
        begun_with = scene.conversations.profile_of(scene.directory.known[board.mac].id)
        assert begun_with is not None
        assert begun_with.echo == expected
        await board.hang_up()

    xiaozhi.against(act, scene)


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({}, "echo", "half_duplex"),
        ({"echo": "cancel"}, "echo", "cancel"),
        ({"echo": "off"}, "echo", "off"),
        ({"barge_in": "wake_word"}, "barge_in", "wake_word"),
        ({"voice": "high"}, "voice", "high"),
        ({"language": "de"}, "language", "de"),
        ({"instructions": "Sing."}, "instructions", "Sing."),
        ({"answer_temperature": 0.0}, "answer_temperature", 0.0),
        ({"tools": ()}, "tools", ()),
        ({"wake_word": "alexa"}, "wake_word", ""),
    ],
)
def test_the_settings_with_which_a_session_begins(
    given: dict[str, Any], field: str, expected: object
) -> None:
    usual = replace(USUAL, echo="half_duplex")
    settings = DeviceProfile(**given).apply_to(usual)
    assert getattr(settings, field) == expected
    others = {name: getattr(usual, name) for name in USUAL.__slots__ if name != field}
    assert {name: getattr(settings, name) for name in others} == others
