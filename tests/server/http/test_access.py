"""Access control before routing: keys, `Host`, proxies, other origins and wrong keys."""

import asyncio

import pytest
from aiohttp import (
    encode_basic_auth,
)

from server.http import app as app_file
from server.http import key_attempts
from server.http.auth import AccessGate
from tests.server.http.harness import KEY, answer_to, error_of, hello, raising, route, serving

pytestmark = pytest.mark.live


def test_requests_without_a_key_get_401_before_routing() -> None:
    gate = AccessGate(is_local=False, key=KEY)
    routes = [route("/hello", hello), route("/open", hello, is_public=True)]

    async def run() -> None:
        async with serving(routes, gate=gate) as client:
            for path in ("/hello", "/nothing"):
                response = await client.get(path)
                assert (response.status, (await error_of(response))["code"]) == (
                    401,
                    "invalid_api_key",
                )
            assert (await client.post("/hello")).status == 401
            assert (await client.get("/open")).status == 200
            keyed = {"Authorization": f"Bearer {KEY}"}
            assert (await client.get("/hello", headers=keyed)).status == 200
            assert (await client.get("/nothing", headers=keyed)).status == 404
            with_protocol = {"Sec-WebSocket-Protocol": f"realtime, openai-insecure-api-key.{KEY}"}
            assert (await client.get("/hello", headers=with_protocol)).status == 200

    asyncio.run(run())


def test_the_key_may_be_a_password_and_only_device_apis_ask_for_one() -> None:
    gate = AccessGate(is_local=False, key=KEY)

    def password(key: str) -> dict[str, str]:
        return {"Authorization": encode_basic_auth("anna", key)}

    async def run() -> None:
        async with serving([route("/api/hello", hello)], gate=gate) as client:
            for path, schemes in (("/api/hello", ["Bearer", "Basic"]), ("/hello", ["Bearer"])):
                refused = await client.get(path, headers=password("wrong"))
                offered = refused.headers.getall("WWW-Authenticate")
                assert (refused.status, [offer.split()[0] for offer in offered]) == (401, schemes)
            with_password = await client.get("/api/hello", headers=password(KEY))
            assert with_password.status == 200

    asyncio.run(run())


def test_foreign_hosts_are_forbidden() -> None:
    async def run() -> None:
        async with serving([route("/hello", hello, is_public=True)]) as client:
            response = await client.get("/hello", headers={"Host": "evil.example"})
            assert (response.status, (await error_of(response))["code"]) == (403, "forbidden_host")

    asyncio.run(run())


PROXIED = (
    "Via",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "x-forwarded-host",
    "X-Forwarded",
    "CF-Connecting-IP",
    "Cf-Ray",
    "CDN-Loop",
    "True-Client-IP",
    "X-Client-IP",
    "X-Real-IP",
    "X-Cluster-Client-Ip",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Tailscale-User-Login",
    "X-Envoy-External-Address",
    "X-Original-Host",
    "X-Original-Forwarded-For",
    "X-Azure-ClientIP",
    "X-Amzn-Trace-Id",
    "X-Auth-Request-User",
    "Remote-User",
)


def test_a_proxied_request_needs_the_key_whatever_headers_it_has() -> None:
    async def run() -> None:
        async with serving([route("/hello", hello)]) as client:
            for name in PROXIED:
                assert (await client.get("/hello", headers={name: "x"})).status == 401, name
                keyed = {name: "x", "Authorization": f"Bearer {KEY}"}
                assert (await client.get("/hello", headers=keyed)).status == 200, name
            usual = {"Accept": "*/*", "X-Request-ID": "1", "X-Stainless-Lang": "python"}
            assert (await client.get("/hello", headers=usual)).status == 200
            # nginx as it comes: no header, but HTTP/1.0.
            head = b"GET /hello HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            assert (await answer_to(client, head)).startswith(b"HTTP/1.0 401 ")

    asyncio.run(run())


def test_a_page_of_another_origin_loads_nothing() -> None:
    async def run() -> None:
        routes = [
            route("/hello", hello),
            route("/open", hello, is_public=True),
            route("/bug", raising(ValueError("b"))),
        ]
        async with serving(routes) as client:
            for site, status in (
                ("cross-site", 403),
                ("same-site", 403),
                ("same-origin", 200),
                ("none", 200),
            ):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
                assert (await client.get("/hello", headers=headers)).status == status, site
                assert (await client.get("/open", headers=headers)).status == 200
            for path in ("/hello", "/open", "/bug", "/nothing"):
                answer = await client.get(path)
                assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin", path
                assert answer.headers["X-Content-Type-Options"] == "nosniff", path
            answered = await answer_to(client, b"nonsense\r\n\r\n")
            assert b"Cross-Origin-Resource-Policy: same-origin\r\n" in answered

    asyncio.run(run())


@pytest.mark.parametrize(
    ("origins", "origin", "is_let_in"),
    [
        ({"*"}, "https://app.example", False),
        ({"https://app.example"}, "https://app.example", True),
        ({"*", "https://app.example"}, "https://app.example", True),
        ({"https://app.example"}, "https://evil.example", False),
    ],
)
def test_only_named_origins_get_private_network_access(
    origins: set[str], origin: str, is_let_in: bool
) -> None:
    gate = AccessGate(is_local=True, key=KEY, origins=frozenset(origins))
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Private-Network": "true",
    }

    async def run() -> None:
        async with serving([route("/hello", hello)], gate=gate) as client:
            answer = await client.options("/hello", headers=asked)
            found = answer.headers.get("Access-Control-Allow-Private-Network")
            assert found == ("true" if is_let_in else None)

    asyncio.run(run())


def test_another_origin_with_the_key_may_read_the_response() -> None:
    site = {"Origin": "https://app.example"}

    async def run() -> None:
        async with serving([route("/hello", hello)]) as client:
            preflight = await client.options(
                "/hello", headers={**site, "Access-Control-Request-Method": "GET"}
            )
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == site["Origin"]
            allowed = preflight.headers["Access-Control-Allow-Headers"].lower()
            assert {"authorization", "x-audio-sample-rate"} <= set(allowed.split(", "))
            refused = await client.get("/hello", headers=site)
            assert refused.status == 401
            keyed = await client.get("/hello", headers={**site, "Authorization": f"Bearer {KEY}"})
            assert keyed.status == 200
            assert keyed.headers["Access-Control-Allow-Origin"] == site["Origin"]
            assert "Location" in keyed.headers["Access-Control-Expose-Headers"]
            own = await client.get("/hello")
            assert "Access-Control-Allow-Origin" not in own.headers

    asyncio.run(run())


def test_wrong_keys_are_delayed_and_the_right_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also on public paths, which say more to a client with the key. A missing key is free."""
    monkeypatch.setattr(key_attempts, "MAX_WAIT_S", 0.1)
    monkeypatch.setattr(app_file, "CLOSE_TIMEOUT_S", 0.05)
    routes = [route("/hello", hello), route("/open", hello, is_public=True)]
    wrong = {"Authorization": "Bearer wrong-key-0123456789"}
    right = {"Authorization": f"Bearer {KEY}"}

    async def scene() -> None:
        async with serving(routes, gate=AccessGate(is_local=False, key=KEY)) as client:
            loop = asyncio.get_running_loop()
            for _ in range(key_attempts.FREE_ATTEMPTS - 1):
                assert (await client.get("/hello", headers=wrong)).status == 401
            assert (await client.get("/open", headers=wrong)).status == 200
            board = {"Authorization": "Bearer dev_of-a-board"}
            for _ in range(3 * key_attempts.FREE_ATTEMPTS):
                assert (await client.get("/open", headers=board)).status == 200
            began = loop.time()
            slow = await client.get("/nowhere", headers=wrong)
            assert (slow.status, (await error_of(slow))["code"]) == (
                401,  # what a page asks for the key after, and no library tries again after
                "too_many_wrong_keys",
            )
            assert slow.headers["WWW-Authenticate"] == "Bearer"
            assert (await client.get("/open", headers=wrong)).status == 200
            assert loop.time() - began >= 0.2
            monkeypatch.setattr(key_attempts, "MAX_WAIT_S", 3600.0)
            held = asyncio.create_task(client.get("/hello", headers=wrong))
            await asyncio.sleep(0)
            for _ in range(3):
                assert (await client.get("/hello", headers=right)).status == 200
                assert (await client.get("/hello")).status == 401
            assert not held.done()
            held.cancel()

    asyncio.run(scene())
