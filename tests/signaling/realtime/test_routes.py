"""The routes of the Realtime API: paths, keys and types."""

from typing import cast

import msgspec

from core.http.routes import Route
from signaling.realtime.client_secrets import ClientSecretStore
from signaling.realtime.door import RealtimeDoor
from signaling.realtime.routes import routes
from tests.pipeline.fakes import LoopClock


class _AnyDoor:
    """Has every handler; none is called."""

    secrets = ClientSecretStore(LoopClock())

    def __getattr__(self, name: str) -> object:
        return lambda request: None


def door_routes() -> tuple[Route, ...]:
    return routes(cast(RealtimeDoor, _AnyDoor()))


def test_paths_and_methods_are_those_of_the_api() -> None:
    assert [(route.method, route.path) for route in door_routes()] == [
        ("GET", "/v1/realtime"),
        ("POST", "/v1/realtime/calls"),
        ("POST", "/v1/realtime"),
        ("POST", "/v1/realtime/calls/{call_id}"),
        ("POST", "/v1/realtime/calls/{call_id}/hangup"),
        ("POST", "/v1/realtime/client_secrets"),
        ("POST", "/v1/realtime/sessions"),
        ("POST", "/v1/realtime/transcription_sessions"),
    ]
    assert not any(route.is_public for route in door_routes())


def test_ephemeral_keys_open_every_path_except_those_that_mint_them() -> None:
    assert [route.path for route in door_routes() if route.admits is None] == [
        "/v1/realtime/client_secrets",
        "/v1/realtime/sessions",
        "/v1/realtime/transcription_sessions",
    ]


def test_every_body_has_a_schema() -> None:
    types = [route.request for route in door_routes() if route.request is not None]
    _, components = msgspec.json.schema_components(types)
    assert {"CallForm", "RealtimeSession", "TranscriptionSession"} <= set(components)


def test_every_handler_exists() -> None:
    door = RealtimeDoor.__new__(RealtimeDoor)
    for secrets in (None, ClientSecretStore(LoopClock())):
        door.secrets = secrets
        handlers = [route.handler for route in routes(door)]
        assert len(handlers) == (8 if secrets else 5)
        assert all(callable(handler) for handler in handlers)
