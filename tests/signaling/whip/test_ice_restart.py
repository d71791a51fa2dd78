"""An ICE restart that fails; `test_browser.py` has one that succeeds."""

import asyncio
import re

import pytest
from psutil import Process

from media.webrtc.ice import restart
from tests.raw_peer import candidates_of
from tests.signaling.whip.client import Publisher, beeps, first, publishing
from tests.signaling.whip.servers import Server, against

pytestmark = pytest.mark.live

SPOKEN = beeps(600, 20_000)


def restarted(publisher: Publisher) -> str:
    """Returns a fragment that restarts ICE; no peer will answer for it."""
    text = re.sub(r"ice-ufrag:[^\r\n]*", "ice-ufrag:abcdefgh", publisher.fragment())
    return re.sub(r"ice-pwd:[^\r\n]*", f"ice-pwd:{'p' * 22}", text)


def test_a_failed_restart_keeps_the_old_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "TIMEOUT_S", 0.3)

    async def scene(server: Server) -> None:
        async with publishing(server.http, beeps(600, 1_500, 600, 20_000)) as publisher:
            before = Process().num_fds()
            answered = await publisher.patch(restarted(publisher), If_Match="*")
            assert answered.status == 200
            assert answered.content_type == "application/trickle-ice-sdpfrag"
            assert answered.headers["ETag"] != publisher.etag
            side = await answered.text()
            assert candidates_of(side)
            assert re.search(r"a=ice-pwd:\S{22}", side)
            late = await publisher.patch(publisher.fragment(), If_Match=publisher.etag)
            assert late.status == 412  # of the former ICE session
            (one,) = server.door.publications._publications.values()
            assert one._restart_task is not None
            await one._restart_task
            assert Process().num_fds() == before
            async with server.http.get(f"{publisher.location}/events") as events:
                for _ in range(2):
                    assert (await first(events, "completed")).data["transcript"] == "one"
            await publisher.end()

    against(scene)


def test_only_the_newest_restart_goes_on_and_it_ends_with_the_publication() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN) as publisher:
            before = Process().num_fds()
            for name in ("first", "second"):
                body = restarted(publisher).replace("abcdefgh", name)
                assert (await publisher.patch(body, If_Match="*")).status == 200
            await asyncio.sleep(0.1)
            gathered = sum(1 for c in candidates_of(publisher.raw.pc.localDescription.sdp))
            assert Process().num_fds() <= before + gathered + 1  # of the second one only
            await publisher.end()
            assert (server.sessions.count, server.door.publications.count) == (0, 0)
        assert Process().num_fds() < before

    against(scene)
