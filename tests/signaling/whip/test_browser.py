"""A browser publishes, and restarts ICE during the connection (RFC 9725, 4.3.3)."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as aioweb

from core.http.routes import Route
from tests.e2e.recorded_microphone import write_clip
from tests.media.webrtc.ice.nat import Nat
from tests.raw_peer import candidates_of, without_candidates
from tests.signaling.whip.client import beeps, first
from tests.signaling.whip.servers import Server, Setup, against
from tests.web.browser import chromium

pytestmark = pytest.mark.browser

PUBLISH = """async (channel) => {
  const peer = window.peer = new RTCPeerConnection();
  window.texts = [];
  const mic = await navigator.mediaDevices.getUserMedia({audio: {
    echoCancellation: false, noiseSuppression: false, autoGainControl: false,
  }});
  peer.addTransceiver(mic.getTracks()[0], {direction: "sendonly"});
  if (channel) peer.createDataChannel("words").onmessage = (event) => window.texts.push(event.data);
  await peer.setLocalDescription();
  const made = await fetch("/whip", {
    method: "POST",
    headers: {"Content-Type": "application/sdp"},
    body: peer.localDescription.sdp,
  });
  window.whip = made.headers.get("Location");
  window.answer = await made.text();
  return window.answer;
}"""

ACCEPT = """async (answer) => {
  const peer = window.peer;
  await peer.setRemoteDescription({type: "answer", sdp: answer});
  for (let tries = 0; peer.connectionState !== "connected"; tries++) {
    if (tries > 500) throw new Error(peer.connectionState);
    await new Promise((go) => setTimeout(go, 20));
  }
}"""

TEXTS = "() => window.texts.length"

RESTART = """async () => {
  const peer = window.peer;
  peer.restartIce();
  await peer.setLocalDescription();
  const line = (name) => peer.localDescription.sdp.match(new RegExp(`a=${name}:.*\\r\\n`))[0];
  const again = await fetch(window.whip, {
    method: "PATCH",
    headers: {"Content-Type": "application/trickle-ice-sdpfrag", "If-Match": "*"},
    body: line("ice-ufrag") + line("ice-pwd"),
  });
  const side = await again.text();
  const theirs = (name) => side.match(new RegExp(`a=${name}:.*\\r\\n`))[0];
  const sdp = window.answer
    .replace(/a=(candidate:.*|end-of-candidates)\\r\\n/g, "")
    .replace(/a=ice-ufrag:.*\\r\\n/, theirs("ice-ufrag"))
    .replace(/a=ice-pwd:.*\\r\\n/, theirs("ice-pwd"));
  const candidates = side.match(/a=candidate:.*\\r\\n/g).join("");
  await peer.setRemoteDescription({type: "answer", sdp: sdp + candidates});
  return {status: again.status, etag: again.headers.get("ETag"), side};
}"""

USED_PORT = """async () => {
  const stats = await window.peer.getStats();
  for (const transport of stats.values()) {
    if (transport.type !== "transport") continue;
    const pair = stats.get(transport.selectedCandidatePairId);
    return stats.get(pair.remoteCandidateId).port;
  }
}"""


async def page(_: aioweb.Request) -> aioweb.Response:
    return aioweb.Response(text="<!doctype html>", content_type="text/html")


def ports_of(sdp: str) -> set[int]:
    return {int(candidate.split()[5]) for candidate in candidates_of(sdp)}


def browse(url: str, clip: Path, goes_on: Callable[[], None]) -> tuple[dict[str, Any], int]:
    """Returns the response to the restart, and the port in use after it."""
    with chromium(f"--use-file-for-fake-audio-capture={clip}") as browser:
        tab = browser.new_page()
        tab.goto(url)
        tab.evaluate(ACCEPT, tab.evaluate(PUBLISH, False))
        goes_on()
        answered: dict[str, Any] = tab.evaluate(RESTART)
        ports = ports_of(answered["side"])
        deadline = time.monotonic() + 10
        while (port := tab.evaluate(USED_PORT)) not in ports and time.monotonic() < deadline:
            tab.wait_for_timeout(50)
        goes_on()
        return answered, port


def test_a_call_that_lost_its_path_continues_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The microphone beeps repeatedly; the scripted recogniser returns "one" for each beep."""

    clip = write_clip(tmp_path / "beeps.wav", beeps(600, 1_200))

    async def scene(server: Server) -> None:
        loop, steps = asyncio.get_running_loop(), asyncio.Queue[None]()
        heard = threading.Semaphore(0)

        def goes_on() -> None:
            loop.call_soon_threadsafe(steps.put_nowait, None)
            assert heard.acquire(timeout=20)

        browsing = loop.run_in_executor(None, browse, str(server.http._base_url), clip, goes_on)
        await steps.get()
        (publication,) = server.door.publications._publications.values()
        assert publication._peer is not None
        etag, old = publication.etag, publication._peer.ice._connection
        async with server.http.get(f"/whip/{publication.id}/events") as events:
            await first(events, "completed")
            for protocol in old._protocols:  # nothing arrives by the old path any more
                monkeypatch.setattr(protocol, "datagram_received", lambda *_: None)
            heard.release()
            await steps.get()
            for _ in range(2):  # the first may have been spoken before
                await first(events, "completed")
            assert publication._peer.ice._connection is not old
            assert (old._protocols, old._closed) == ([], True)
            heard.release()
            answered, port = await browsing
            assert answered["status"] == 200
            assert answered["etag"] == publication.etag != etag
            assert port in ports_of(answered["side"])
        await (await server.http.delete(f"/whip/{publication.id}")).read()

    against(
        scene,
        Setup(routes=(Route("GET", "/", page, "A page.", "test", is_public=True, scope="talk"),)),
    )


def call_through(
    url: str, clip: Path, translated: Callable[[str], str], move: Callable[[], None]
) -> None:
    """Waits for messages on the data channel before and after the caller's address changes."""
    with chromium(f"--use-file-for-fake-audio-capture={clip}") as browser:
        tab = browser.new_page()
        tab.set_default_timeout(20_000)
        tab.goto(url)
        tab.evaluate(ACCEPT, translated(tab.evaluate(PUBLISH, True)))
        tab.wait_for_function("() => window.texts.length > 0")
        move()
        before = tab.evaluate(TEXTS)
        tab.wait_for_function(f"() => window.texts.length > {before + 2}")


def test_a_call_goes_on_when_the_browsers_address_changes(tmp_path: Path) -> None:
    """The browser nominates its pair again with each check, which shows its new address."""
    clip = write_clip(tmp_path / "beeps.wav", beeps(600, 1_200))

    async def scene(server: Server) -> None:
        loop, nats = asyncio.get_running_loop(), list[Nat]()

        async def open_nat(answer: str) -> str:
            ours = next(one for one in candidates_of(answer) if "." in one.split()[4])
            address, port = ours.split()[4:6]
            nats.append(Nat((address, int(port))))
            await nats[0].open()
            seen = ours.replace(f"{address} {port}", f"{address} {nats[0].port}")
            return without_candidates(answer).replace("m=app", f"a={seen}\r\nm=app")

        def translated(answer: str) -> str:
            return asyncio.run_coroutine_threadsafe(open_nat(answer), loop).result(10)

        def move() -> None:
            asyncio.run_coroutine_threadsafe(nats[0].move(), loop).result(10)

        url = str(server.http._base_url)
        await loop.run_in_executor(None, call_through, url, clip, translated, move)
        nats[0].close()
        (publication,) = server.door.publications._publications.values()
        await publication.end()

    against(
        scene,
        Setup(routes=(Route("GET", "/", page, "A page.", "test", is_public=True, scope="talk"),)),
    )
