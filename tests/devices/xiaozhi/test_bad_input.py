"""Every error between a board and the server ends as documented, logs one line without secrets,
and leaves the device's state unchanged. docs/xiaozhi.md lists the codes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError

from core.audio import ASR_RATE_HZ
from devices.fleet.directory import Device
from devices.xiaozhi.audio import DeviceAudioInput
from tests.devices.xiaozhi.servers import MemoryDirectory, Scene, Server, SineTts, against
from tests.devices.xiaozhi.simulated_board import Board, speech

pytestmark = pytest.mark.live


def spoilt(
    act: Callable[[Server, Board], Awaitable[Any]],
    caplog: pytest.LogCaptureFixture,
    scene: Scene | None = None,
    *,
    lines: int = 1,
    **values: Any,
) -> None:
    """Runs `act` on a board that has checked in; afterwards it is unchanged and reconnects."""
    caplog.set_level(logging.INFO)

    async def with_board(server: Server) -> None:
        board = server.board(**values)
        await board.boot()
        known = dict(server.scene.directory.known)
        caplog.clear()
        await act(server, board)
        await board.hang_up()
        await server.left()
        loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(loud) == lines, [record.getMessage() for record in loud]
        assert "dvt-secret" not in caplog.text
        assert server.scene.directory.known == known
        again = Board(server.client, flash_of=board)
        await again.open()
        assert again.session_id
        await again.hang_up()

    against(with_board, scene)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer dvt-secret-wrong"},
        {"Authorization": "dvt-secret-0"},
        {"Authorization": "Bearer"},
        {"Device-Id": "00:00:00:00:00:01"},
        {"Device-Id": ""},
    ],
)
def test_a_wrong_key_or_the_key_of_another_device_is_refused(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def act(server: Server, board: Board) -> None:
        with pytest.raises(WSServerHandshakeError) as caught:
            await board.open(replaced=headers)
        assert caught.value.status == 401
        assert server.scene.sessions.count == 0

    spoilt(act, caplog)


@pytest.mark.parametrize("standing", ["new", "blocked"])
def test_a_key_of_a_device_that_is_no_longer_approved_is_refused(standing: str) -> None:
    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        server.scene.directory.change(board.mac, standing=standing)
        with pytest.raises(WSServerHandshakeError) as caught:
            await board.open()
        assert caught.value.status == 401

    against(act)


class BlockedMeanwhile(MemoryDirectory):
    """A directory that blocks the device just after its key was looked up."""

    async def device_with_key(self, token: str, identity: bytes = b"") -> Device | None:
        found = await super().device_with_key(token, identity)
        if found is not None:
            self.change(found.hardware_id, standing="blocked")
        return found


def test_a_device_blocked_while_it_connects_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        headers = board.headers() | {"Authorization": f"Bearer {board.flash['token']}"}
        async with server.client.ws_connect(board.flash["url"], headers=headers) as ws:
            await ws.receive()
            assert ws.close_code == 1008
        await server.left()
        assert "dvt-secret" not in caplog.text

    against(act, Scene(directory=BlockedMeanwhile()))


@pytest.mark.parametrize("version", ["0", "4", "x", "", "1e1", "٣"])
def test_an_unknown_protocol_version_is_refused(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(_: Server, board: Board) -> None:
        with pytest.raises(WSServerHandshakeError) as caught:
            await board.open(replaced={"Protocol-Version": version})
        assert caught.value.status == 400

    spoilt(act, caplog, lines=0)


def test_a_full_server_refuses_a_board(caplog: pytest.LogCaptureFixture) -> None:
    async def act(_: Server, board: Board) -> None:
        await board.open()
        other = Board(board.http, flash_of=board)
        with pytest.raises(WSServerHandshakeError) as caught:
            await other.open()
        assert caught.value.status == 503

    spoilt(act, caplog, Scene(max_sessions=1), lines=0)


def test_a_second_socket_of_a_device_replaces_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """The newer socket replaces the older one."""

    async def act(server: Server, board: Board) -> None:
        await board.open()
        other = Board(board.http, flash_of=board)
        await other.open()
        await board.closed.wait()
        assert board.close_code == 1008
        assert await other.turn("two") == ("two", ["you said two."])
        assert len(server.scene.presence.ids()) == 1
        await other.hang_up()

    spoilt(act, caplog, lines=0)


@pytest.mark.parametrize(("spoken", "announced"), [(2, 3), (3, 2)])
def test_frames_of_another_version_than_announced_are_refused(
    spoken: int, announced: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(_: Server, board: Board) -> None:
        await board.open(replaced={"Protocol-Version": str(announced)})
        board.say("one")
        await board.closed.wait()
        assert board.close_code == 1002

    spoilt(act, caplog, framing=spoken)
    assert f"protocol {announced}" in caplog.text
    assert "bad_frame" in caplog.text


@pytest.mark.parametrize("size", [70_000, 10_000_000])
def test_too_much_json_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def act(_: Server, board: Board) -> None:
        await board.open()
        assert board.ws is not None
        with suppress(ConnectionError):  # we do not wait for the rest
            await board.ws.send_str('{"type":"' + "a" * size + '"}')
        await board.closed.wait()
        assert board.close_code in ((1009,) if size < 100_000 else (1009, 1006))

    spoilt(act, caplog)
    assert "exceeds limit" in caplog.text


def test_opus_garbage_is_silence_and_the_session_lives(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: Server, board: Board) -> None:
        await board.open()
        board.say_packets([b"\xff" * 40] * 10 + speech("one") + [b"\xff" * 40] * 20)
        assert (await board.text("stt"))["text"] == "one"
        await board.text("tts", state="stop")
        assert server.scene.metrics.counts["earshot_xiaozhi_bad_input:packet"] >= 10

    spoilt(act, caplog)
    assert "invalid Opus packets" in caplog.text


def test_texts_that_are_not_messages_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    texts = (
        '{"session_id":"","type":"listen","state":"detect","text":"say "hi""}',
        "",
        "[]",
        '{"type":"listen","state":"start","mode":"always"}',
        '{"type":"hello","audio_params":{"format":"pcm"}}',
        "[" * 60_000,
    )

    async def act(server: Server, board: Board) -> None:
        await board.open()
        assert board.ws is not None
        for text in texts:
            await board.ws.send_str(text)
        assert await board.turn("two") == ("two", ["you said two."])
        assert server.scene.metrics.counts["earshot_xiaozhi_bad_input:text"] == len(texts)

    spoilt(act, caplog)


def test_a_client_without_a_hello_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: Server, board: Board) -> None:
        headers = board.headers() | {"Authorization": f"Bearer {board.flash['token']}"}
        async with server.client.ws_connect(board.flash["url"], headers=headers) as ws:
            await ws.send_bytes(b"early")
            await ws.send_str('{"type":"listen","state":"start","mode":"auto"}')
            await ws.receive()
            assert ws.close_code == 1002

    spoilt(act, caplog, Scene().with_dialogue(hello_timeout_s=0.3), lines=0)


def test_a_board_that_vanishes_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: Server, board: Board) -> None:
        await board.open()
        board.say("one")
        await board.text("tts", state="start")
        await board.hang_up()
        await server.left()
        assert server.scene.presence.ids() == ()

    spoilt(act, caplog, lines=0)


def test_a_failed_answer_ends_the_speaking_state(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: Server, board: Board) -> None:
        server.scene.llm.fails = True
        await board.open()
        board.say("one")
        await board.text("tts", state="start")
        await board.text("tts", state="stop")
        await board.until("listening")
        server.scene.llm.fails = False

    spoilt(act, caplog)


def test_a_stop_before_listening_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    async def act(server: Server, board: Board) -> None:
        await board.open()
        await board.tell({"type": "listen", "state": "stop"})
        await board.listen()
        assert await board.turn("one") == ("one", ["you said one."])

    spoilt(act, caplog, lines=0, mode="manual")


def test_the_server_does_not_wait_for_a_close_of_stock_firmware() -> None:
    """It keeps its connection until it opens the next one, and has no extensions."""

    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        headers = board.headers() | {"Authorization": f"Bearer {board.flash['token']}"}
        async with server.client.ws_connect(
            board.flash["url"], headers=headers, autoclose=False, compress=15
        ) as ws:
            assert ws.compress == 0
            (device_id,) = server.scene.presence.ids()
            live = server.scene.presence.find(device_id)
            assert live is not None
            await live.close()
            message = await ws.receive()
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1008)
            async with asyncio.timeout(3):  # aiohttp's own wait is 10 s
                await server.left()

    against(act)


@pytest.mark.parametrize("packet_ms", [20, 60, 120])
def test_every_packet_counts_with_its_whole_duration(packet_ms: int) -> None:
    """Otherwise a pause would look shorter, and its end would not be found."""
    ear, samples = DeviceAudioInput(), 0
    for packet in (b"", b"\x58", b"\x58\x00", b"\x58\x00\x01", b"\xff" * 50) * 10:
        samples += sum(len(frame.pcm) for frame in ear.decode(packet, packet_ms))
    assert samples == 50 * packet_ms * ASR_RATE_HZ // 1000
    assert ear.invalid_packets == 10


def test_a_draining_server_closes_the_connection_with_1012() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.scene.sessions.drain(0.1))
            await board.closed.wait()
        assert board.close_code == 1012
        await board.hang_up()

    against(act, replace(Scene()))


def test_a_draining_server_plays_the_answer_to_its_end() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        board.say("one")
        await board.text("tts", state="sentence_start")
        await server.scene.sessions.drain(5)
        await board.closed.wait()
        assert (board.close_code, board.left_at_stop) == (1012, [0])
        assert len(board.played) * 60 >= 1000
        await board.hang_up()

    against(act, Scene(tts=SineTts(1000)))
