"""Publishing over WHIP with a third-party client, step by step as in RFC 9725."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from devices.fleet.directory import SessionProfile
from devices.registry.database import open_database
from devices.registry.named_keys import NamedKeys
from media.webrtc.ice.settings import IceServer, IceSettings
from media.webrtc.peer import PeerSettings
from pipeline.shared.settings import SessionSettings
from server.compose.settings import CallerDefaults
from server.http.auth import AccessGate
from signaling.whip.publication import WhipSettings
from tests.devices.registry.harness import Moment
from tests.media.paths import PUBLIC, on_both_paths
from tests.raw_peer import RawPeer, candidates_of
from tests.server.http.harness import KEY, error_of
from tests.signaling.whip.client import (
    SDP,
    Publisher,
    beeps,
    first,
    publishing,
    until_gone,
)
from tests.signaling.whip.servers import DEADLINE_S, Server, Setup, against, running

pytestmark = pytest.mark.live

SPOKEN = beeps(600, 20_000)
CODES = {404: "publication_not_found", 503: "server_full"}


@on_both_paths
def test_transcripts_of_the_audio_come_on_the_data_channel(path: PeerSettings) -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN, channel="anything") as publisher:
            said = json.loads(await publisher.raw.texts.get())
            while said["type"] != "completed":
                assert said["type"] == "hypothesis"
                said = json.loads(await publisher.raw.texts.get())
            assert (said["transcript"], said["language"]) == ("one", "en")
            (session,) = server.sessions._sessions.values()
            assert session.settings.answers is False
            ended = await publisher.end()
            assert ended.status == 200
            assert (server.sessions.count, server.door.publications.count) == (0, 0)

    against(scene, Setup(WhipSettings(peer=path)))


def test_the_answer_is_as_the_rfc_requires() -> None:
    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
        response = await publisher.publish()
        assert (response.status, response.content_type) == (201, "application/sdp")
        assert re.fullmatch(r"/whip/whip_[0-9a-f]{24}", publisher.location)
        assert re.fullmatch(r'"[A-Za-z0-9_-]{12}"', publisher.etag)
        assert "Link" not in response.headers
        answer = await response.text()
        assert "a=recvonly" in answer
        assert "a=sendrecv" not in answer
        assert candidates_of(answer)
        assert "a=end-of-candidates" in answer
        for method in ("HEAD", "GET"):
            probe = await server.http.request(method, publisher.location)
            assert (probe.status, await probe.read()) == (204, b"")
        await publisher.end()
        await publisher.raw.close()

    against(scene)


def test_sendrecv_is_answered_with_recvonly() -> None:
    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendrecv"))
        response = await publisher.publish()
        assert "a=recvonly" in await response.text()
        await publisher.raw.connected.wait()
        await publisher.end()
        await publisher.raw.close()

    against(scene)


def test_ice_servers_come_as_links_with_credentials_for_this_publication() -> None:
    servers = (
        IceServer(("stun:127.0.0.1:9",)),
        IceServer(("turn:127.0.0.1:9", "turns:127.0.0.1:9"), shared_secret="north"),
    )
    ice = IceSettings(servers, gather_timeout_s=0.1, credential_ttl_s=60, wall_s=lambda: 40.0)

    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
        response = await publisher.publish()
        stun, turn, turns = response.headers.getall("Link")
        assert stun == '<stun:127.0.0.1:9>; rel="ice-server"'
        name = publisher.location.removeprefix("/whip/")
        assert turn.startswith(f'<turn:127.0.0.1:9>; rel="ice-server"; username="100:{name}"; ')
        assert turn.endswith('; credential-type="password"')
        assert turns.partition(">")[2] == turn.partition(">")[2]
        assert "north" not in turn
        await publisher.end()
        await publisher.raw.close()

    against(scene, Setup(WhipSettings(peer=PeerSettings(ice=ice))))


def test_candidates_can_trickle() -> None:
    """Offer and answer contain no candidates of either side."""

    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
        await publisher.publish(trickles=True)
        one, *others = candidates_of(publisher.offer)
        for part in filter(None, [others, [one]]):  # any order, several PATCHes
            response = await publisher.patch(publisher.fragment(part), If_Match=publisher.etag)
            assert response.status == 204
            assert "ETag" not in response.headers
        await publisher.raw.connected.wait()
        async with server.http.get(f"{publisher.location}/events") as events:
            assert (await first(events, "completed")).data["transcript"] == "one"
        await publisher.end()
        await publisher.raw.close()

    against(scene)


def test_the_etag_names_the_ice_session() -> None:
    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
        await publisher.publish(trickles=True)  # not connected before its candidates come
        body, etag = publisher.fragment(), publisher.etag
        other = re.sub("ice-ufrag:.*", "ice-ufrag:abcdefgh\r", body)
        for headers, text, status, code in (
            ({}, body, 428, "if_match_required"),
            ({"If_Match": '"other"'}, body, 412, "etag_mismatch"),
            ({"If_Match": f"W/{etag}"}, body, 412, "etag_mismatch"),
            ({"If_Match": etag}, other, 422, "unknown_ice_session"),
            ({"If_Match": "*"}, body, 400, "invalid_sdp_fragment"),  # no new ufrag
            ({"If_Match": '"*"'}, other, 409, "ice_not_connected"),
        ):
            response = await publisher.patch(text, **headers)
            assert response.status == status
            assert (await error_of(response))["code"] == code
        for good in (etag, f'"other", {etag}'):
            assert (await publisher.patch(body, If_Match=good)).status == 204
        await publisher.raw.connected.wait()  # none of the requests did harm
        await publisher.end()
        await publisher.raw.close()

    against(scene)


def test_on_the_public_path_a_restart_is_refused_and_the_call_goes_on() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN) as publisher:
            other = re.sub("ice-ufrag:.*", "ice-ufrag:abcdefgh\r", publisher.fragment())
            response = await publisher.patch(other, If_Match="*")
            assert response.status == 422
            assert (await error_of(response))["code"] == "ice_restart_unsupported"
            async with server.http.get(f"{publisher.location}/events") as events:
                assert (await first(events, "completed")).data["transcript"] == "one"
            await publisher.end()

    against(scene, Setup(WhipSettings(peer=PUBLIC)))


def test_an_ended_publication_is_not_found() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN) as publisher:
            ended = await server.http.delete(publisher.location, headers={"If-Match": '"any"'})
            assert ended.status == 200
            await publisher.raw.ended.wait()
            for method, path in (
                ("DELETE", ""),
                ("PATCH", ""),
                ("GET", ""),
                ("GET", "/events"),
            ):
                gone = await server.http.request(method, publisher.location + path)
                assert gone.status == 404
                assert method == "HEAD" or (await error_of(gone))["code"] == CODES[404]

    against(scene)


def test_a_publisher_that_vanishes_is_noticed() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN) as publisher:
            async with server.http.get(f"{publisher.location}/events") as events:
                publisher.raw.cut()
                assert (await first(events, "closed")).data["reason"] == "connection_lost"
            await until_gone(server.http, publisher.location)
        assert server.world.metrics.counts["earshot_errors:connection_lost"] == 1

    against(scene, Setup(WhipSettings(peer=PeerSettings(vanished_timeout_s=0.5))))


def test_a_publisher_that_never_connects_is_given_up() -> None:
    async def scene(server: Server) -> None:
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
        response = await server.http.post("/whip", data=await publisher.raw.offer(), headers=SDP)
        await until_gone(server.http, response.headers["Location"])
        assert server.world.metrics.counts["earshot_errors:connect_timeout"] == 1
        await publisher.raw.close()

    against(scene, Setup(WhipSettings(peer=PeerSettings(connect_timeout_s=0.2))))


def test_long_silence_ends_the_publication() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, beeps(0, 20_000)) as publisher:
            async with server.http.get(f"{publisher.location}/events") as events:
                assert (await first(events, "closed")).data["reason"] == "idle"
            await publisher.raw.ended.wait()

    against(scene, Setup(WhipSettings(idle_timeout_s=1)))


def test_a_full_server_says_when_to_retry() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN) as publisher:
            second = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
            refused = await second.publish()
            assert refused.status == 503
            assert int(refused.headers["Retry-After"]) > 0
            assert (await error_of(refused))["code"] == CODES[503]
            await second.raw.close()
            await publisher.end()

    against(scene, Setup(max_sessions=1))


def test_draining_ends_publications_and_refuses_new_ones() -> None:
    async def scene(server: Server) -> None:
        async with publishing(server.http, SPOKEN) as publisher:
            await server.sessions.drain(1)
            await publisher.raw.ended.wait()
            late = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
            assert (await error_of(await late.publish()))["code"] == "draining"
            await late.raw.close()

    against(scene)


def test_every_request_needs_the_key() -> None:
    async def scene(server: Server) -> None:
        bearer = {"Authorization": f"Bearer {KEY}"}
        raw = RawPeer(SPOKEN, "sendonly")
        offer = await raw.offer()
        assert (await server.http.post("/whip", data=offer, headers=SDP)).status == 401
        made = await server.http.post("/whip", data=offer, headers={**SDP, **bearer})
        assert made.status == 201
        location = made.headers["Location"]
        for method, path in (("PATCH", ""), ("DELETE", ""), ("GET", ""), ("GET", "/events")):
            assert (await server.http.request(method, location + path)).status == 401
        assert (await server.http.delete(location, headers=bearer)).status == 200
        await raw.close()

    against(scene, Setup(gate=AccessGate(is_local=False, key=KEY)))


def test_a_browser_of_another_origin_can_publish() -> None:
    """CORS (4.2): the preflight needs no key, and scripts may read the necessary headers of the
    answer."""

    async def scene(server: Server) -> None:
        origin = {"Origin": "https://studio.example"}
        asks = {
            **origin,
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": "authorization,content-type,if-match",
        }
        preflight = await server.http.options("/whip/whip_1", headers=asks)
        assert preflight.status == 200
        assert preflight.headers["Accept-Patch"] == "application/trickle-ice-sdpfrag"
        allowed = preflight.headers["Access-Control-Allow-Headers"]
        assert {"Authorization", "Content-Type", "If-Match"} <= set(allowed.split(", "))
        methods = preflight.headers["Access-Control-Allow-Methods"].split(", ")
        assert {"POST", "PATCH", "DELETE", "OPTIONS"} <= set(methods)
        asks["Access-Control-Request-Method"] = "POST"
        preflight = await server.http.options("/whip", headers=asks)
        assert (preflight.status, preflight.headers["Accept-Post"]) == (200, "application/sdp")
        assert preflight.headers["Access-Control-Allow-Origin"] == origin["Origin"]
        assert (await server.http.options("/whip", headers=origin)).status == 401
        raw = RawPeer(SPOKEN, "sendonly")
        headers = {**SDP, **origin, "Authorization": f"Bearer {KEY}"}
        made = await server.http.post("/whip", data=await raw.offer(), headers=headers)
        assert made.status == 201
        shown = set(made.headers["Access-Control-Expose-Headers"].split(", "))
        assert {"Location", "Link", "ETag", "Accept-Post"} <= shown
        await server.http.delete(made.headers["Location"])
        await raw.close()

    against(scene)


@pytest.mark.parametrize(
    ("path", "header", "value", "allow"),
    [
        ("/whip", "Accept-Post", "application/sdp", "POST"),
        ("/whip/whip_1", "Accept-Patch", "application/trickle-ice-sdpfrag", "PATCH"),
    ],
)
def test_options_name_the_accepted_types(path: str, header: str, value: str, allow: str) -> None:
    async def scene(server: Server) -> None:
        response = await server.http.options(path)
        assert (response.status, response.headers[header]) == (200, value)
        assert allow in response.headers["Allow"].split(", ")

    against(scene)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_endpoint_can_be_probed(method: str) -> None:
    async def scene(server: Server) -> None:
        response = await server.http.request(method, "/whip")
        assert (response.status, await response.read()) == (204, b"")

    against(scene)


def test_many_publications_leave_no_tasks() -> None:
    async def scene(server: Server) -> None:
        for _ in range(3):
            async with publishing(server.http, SPOKEN) as publisher:
                await publisher.end()
        own = {task for task in asyncio.all_tasks() if task.get_name().startswith("whip_")}
        assert own == set()

    against(scene)


def test_a_call_begins_with_the_settings_of_its_named_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_database(f"sqlite:///{tmp_path}/devices.db") as database:
            keys = NamedKeys(database, Moment())
            profile = SessionProfile(language="de", voice="tief", instructions="Be brief.")
            _, anna = await keys.add("anna", ["talk"], profile=profile)
            defaults = CallerDefaults(lambda: SessionSettings(language="en"), keys)
            gate = AccessGate(is_local=True, key=KEY, keys=keys)
            async with running(Setup(WhipSettings(initial_settings=defaults), gate=gate)) as server:
                assert await settings_of_call(server, anna) == ("de", "tief", "Be brief.")
                assert await settings_of_call(server, anna, "/whip?language=en") == (
                    ("en", "tief", "Be brief.")
                )
                assert await settings_of_call(server, KEY) == ("en", "default", "")

    async def settings_of_call(
        server: Server, key: str, path: str = "/whip"
    ) -> tuple[str | None, ...]:
        headers = {"Authorization": f"Bearer {key}"}
        publisher = Publisher(server.http, RawPeer(SPOKEN, "sendonly"))
        try:
            response = await publisher.publish(path, headers=headers)
            assert response.status == 201, await response.text()
            (session,) = server.sessions._sessions.values()
            ended = await server.http.delete(publisher.location, headers=headers)
            assert ended.status == 200
        finally:
            await publisher.raw.close()
        settings = session.settings
        return settings.language, settings.voice, settings.instructions

    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(limited())
