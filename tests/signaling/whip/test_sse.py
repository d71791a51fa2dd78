"""The transcripts, read as server-sent events over real sockets."""

import asyncio

import pytest
from aiohttp import ClientError

from signaling.whip import sse
from signaling.whip.transcript_feed import MAX_READERS, MAX_UNREAD, FinalTranscript
from tests.server.http.harness import error_of
from tests.signaling.whip.client import beeps, first, publishing, read_events
from tests.signaling.whip.servers import Server, against

pytestmark = pytest.mark.live

TWICE = beeps(500, 1_200, 500, 20_000)


def test_readers_get_all_transcripts_and_the_end() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, TWICE) as publisher:
            path = f"{publisher.location}/events"
            async with server.http.get(path) as response:
                assert response.status == 200
                assert response.content_type == "text/event-stream"
                assert (await first(response, "completed")).data["transcript"] == "one"
                second = await first(response, "completed")
                async with server.http.get(path) as late:
                    again = [await first(late, "completed") for _ in range(2)]
                    assert again[1] == second
                going_on = {"Last-Event-ID": str(again[0].number)}
                async with server.http.get(path, headers=going_on) as back:
                    assert await first(back, "completed") == second
                await publisher.end()
                rest = [event async for event in read_events(response)]
                assert rest[-1].data == {"type": "closed", "reason": "closed"}

    against(scene)


def test_a_reader_that_takes_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers of the sockets fill first, then our own; the publication goes on."""
    monkeypatch.setattr(sse, "STALL_S", 0.3)

    async def scene(server: Server) -> None:
        async with publishing(server.http, TWICE) as publisher:
            port = server.http._base_url.port  # type: ignore[union-attr]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            path = f"{publisher.location}/events"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            (one,) = server.door.publications._publications.values()
            big = FinalTranscript("item_1", "x" * 100_000, "en", 1.0)
            while not server.world.metrics.counts.get("earshot_errors:reader_lagging"):
                one.feed.put(big)
                await asyncio.sleep(0.005)
            assert one.feed._readers == set()
            assert (await publisher.end()).status == 200
            writer.close()

    against(scene)


def test_a_reader_with_too_many_unread_events_is_disconnected() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, TWICE) as publisher:
            async with server.http.get(f"{publisher.location}/events") as response:
                (one,) = server.door.publications._publications.values()
                for _ in range(MAX_UNREAD + 1):  # at once: no reader can have read them
                    one.feed.put(FinalTranscript("item_1", "x", "en", 1.0))
                with pytest.raises(ClientError):
                    async for _ in response.content:
                        pass
            await publisher.end()
        assert server.world.metrics.counts["earshot_errors:reader_lagging"] == 1

    against(scene)


def test_a_reader_that_leaves_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.05)

    async def scene(server: Server) -> None:
        async with publishing(server.http, TWICE) as publisher:
            path = f"{publisher.location}/events"
            readers = [await server.http.get(path) for _ in range(MAX_READERS)]
            refused = await server.http.get(path)
            assert refused.status == 503
            assert (await error_of(refused))["code"] == "too_many_readers"
            for reader in readers:
                reader.close()
            (one,) = server.door.publications._publications.values()
            while True:
                if not one.feed._readers:
                    break
                await asyncio.sleep(0.02)
            await publisher.end()

    against(scene)
