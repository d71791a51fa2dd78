import asyncio
from types import SimpleNamespace
from typing import cast

from aiortc import RTCDataChannel

from media.webrtc.data_channel import CHANNEL_LABEL, MAX_HOLD_S, EventChannel
from tests.loop import run_virtual


def opened() -> tuple[EventChannel, list[str]]:
    """Returns an open channel and the list of what it sends."""

    def nothing(*_: object) -> None: ...

    sent: list[str] = []
    channel = EventChannel(nothing, nothing, nothing, nothing, nothing)
    wire = {"label": CHANNEL_LABEL, "readyState": "open", "bufferedAmount": 0}
    channel.attach(cast(RTCDataChannel, SimpleNamespace(**wire, on=nothing, send=sent.append)))
    return channel, sent


def test_held_texts_are_sent_in_order_on_release() -> None:
    async def main() -> None:
        channel, sent = opened()
        channel.send("before")
        channel.hold()
        channel.send("first")
        channel.hold()
        channel.send("second")
        assert sent == ["before"]
        channel.release()
        assert not channel.is_holding
        channel.send("after")
        assert sent == ["before", "first", "second", "after"]

    run_virtual(main())


def test_texts_are_held_only_for_a_moment() -> None:
    async def main() -> None:
        channel, sent = opened()
        channel.hold()
        channel.send("first")
        await asyncio.sleep(MAX_HOLD_S / 2)
        channel.hold()  # does not restart the limit
        channel.send("second")
        await asyncio.sleep(MAX_HOLD_S / 2 + 0.001)
        assert sent == ["first", "second"]
        channel.send("third")
        assert sent[2:] == ["third"]

    run_virtual(main())
