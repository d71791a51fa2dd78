"""Home Assistant's ingress: the page in a frame of Home Assistant, without the key, and for nobody
but the ingress."""

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.ports import reserved_port
from tests.server.process import serving

pytestmark = pytest.mark.live

INGRESS = {
    "Host": "house.example:8123",
    "X-Ingress-Path": "/api/hassio_ingress/token",
    "X-Forwarded-For": "192.168.1.7, 172.30.32.1",
    "X-Remote-User-Id": "1234",
}
"Headers of a request that came through the ingress."


def _answer(url: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Returns (status, body, content security policy)."""
    request = Request(url, method=method, headers={**INGRESS, **headers})
    try:
        with urlopen(request, timeout=20) as answer:
            policy = answer.headers.get("Content-Security-Policy", "")
            return answer.status, answer.read().decode(), policy
    except HTTPError as error:
        return error.code, error.read().decode(), ""


def test_the_ingress_needs_no_key_and_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    with reserved_port() as port:
        settings = {
            "EARSHOT_HOME_ASSISTANT__INGRESS_PORT": str(port),
            "EARSHOT_HOME_ASSISTANT__INGRESS_PROXY": "127.0.0.1",
            "EARSHOT_REQUIRE_KEY": "true",
        }
        with serving(tmp_path, settings=settings) as server:
            url = f"http://127.0.0.1:{port}"
            status, page, policy = _answer(f"{url}/")
            assert status == 200
            assert 'src="static/app.js"' in page
            assert "frame-ancestors 'self'" in policy
            origin = "https://house.example:8123"
            status, engines, _ = _answer(f"{url}/earshot/engines", Origin=origin)
            assert status == 200
            assert json.loads(engines)["asr"]["chosen"]
            # The main port knows neither this name nor this caller.
            assert _answer(f"{server.url}/earshot/engines")[0] == 403
            local = {"Host": server.url.removeprefix("http://")}
            status, _, policy = _answer(f"{server.url}/", **local)
            assert status == 200
            assert _answer(f"{server.url}/earshot/engines", **local)[0] == 401


def test_only_the_ingress_may_connect_to_its_port(tmp_path: Path) -> None:
    with reserved_port() as port:
        settings = {"EARSHOT_HOME_ASSISTANT__INGRESS_PORT": str(port)}
        with serving(tmp_path, settings=settings):
            for path in ("/", "/health", "/earshot/engines", "/nothing"):
                status, body, _ = _answer(f"http://127.0.0.1:{port}{path}")
                assert status == 403
                assert json.loads(body)["error"]["code"] == "forbidden_address"
