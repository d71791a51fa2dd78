"""A server with both of Ingrain's ports, and requests as Ingrain's clients send them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

from tests.ports import reserved_port
from tests.server.process import serving

CLIENT = {"User-Agent": "ingrain-client/0.2.3", "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Ports:
    inference: str
    models: str
    folder: Path
    main: str
    "Address of the server's own API."

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        return self._sent("POST", path, body, status)

    def delete(self, path: str, body: Any, status: int = 200) -> Any:
        return self._sent("DELETE", path, body, status)

    def get(self, path: str, **headers: str) -> Any:
        """Sends the body of an older request, too, as the client on pycurl does."""
        body = b'{"name": "acme/tiny"}' if headers else b""
        return httpx.request("GET", self._url(path), headers=headers, content=body).json()

    def _sent(self, method: str, path: str, body: Any, status: int) -> Any:
        url, data = self._url(path), json.dumps(body).encode()
        answer = httpx.request(method, url, headers=CLIENT, content=data, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()

    def _url(self, path: str) -> str:
        is_inference = path.startswith(("/infer", "/embed", "/metrics", "/classify"))
        return (self.inference if is_inference else self.models) + path


@contextmanager
def opened_ports(folder: Path, **settings: str) -> Iterator[Ports]:
    """Starts a server with the models in `folder/models`. `settings`: variables of the environment
    without their prefix."""
    with reserved_port() as inference, reserved_port() as models:
        variables = {
            "EARSHOT_PATHS__MODELS_DIR": str(folder / "models"),
            "EARSHOT_INGRAIN__PORT": str(inference),
            "EARSHOT_INGRAIN__MODEL_PORT": str(models),
            **{f"EARSHOT_{name}": value for name, value in settings.items()},
        }
        with serving(folder, settings=variables) as server:
            first, second = (f"http://127.0.0.1:{port}" for port in (inference, models))
            yield Ports(first, second, folder / "models", server.url)
