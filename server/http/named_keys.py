"""`/v1/keys`: lists, makes, changes and revokes named keys. The page and `earshot keys` use it."""

from collections.abc import Callable
from http import HTTPStatus

import msgspec
from aiohttp import web as aioweb

from core.access.named_key import CALLER_KEY, SCOPES, KeyScope, NamedKey
from core.errors import Forbidden, RequestError
from core.http.json_body import decode_json_body_or_empty
from core.http.routes import JSON, Route
from devices.api.profile_check import PROFILE_ERRORS, check_profile
from devices.fleet.directory import EMPTY_PROFILE, SessionProfile
from devices.registry.named_keys import NamedKeyRecord, NamedKeys
from server.http.named_key_views import (
    NamedKeyEdit,
    NamedKeyList,
    NamedKeyRequest,
    NamedKeyView,
    NewNamedKey,
)

_TAG = "keys"
_NO_STORE = {"Cache-Control": "no-store"}


class NamedKeysDoor:
    """HTTP handlers for the named keys."""

    def __init__(
        self,
        keys: NamedKeys,
        count_sessions: Callable[[NamedKey], int],
        check: Callable[[SessionProfile], None],
    ) -> None:
        """count_sessions: returns the number of live sessions of a key. check: as `check_profile`
        wants it."""
        self._keys, self._count_sessions, self._check = keys, count_sessions, check

    async def list_all(self, _: aioweb.Request) -> aioweb.Response:
        return _json(NamedKeyList(tuple(map(self._view, self._keys.all_keys()))))

    async def add(self, request: aioweb.Request) -> aioweb.Response:
        body = _read_request(await request.read())
        _check_maker(body.scopes)
        profile = body.profile.apply_to(EMPTY_PROFILE)
        check_profile(profile, self._check)
        record, token = await self._keys.add(
            body.name,
            body.scopes,
            max_sessions=body.max_sessions,
            requests_per_minute=body.requests_per_minute,
            profile=profile,
        )
        return _json(NewNamedKey(token, self._view(record)), HTTPStatus.CREATED)

    async def edit(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), NamedKeyEdit)
        name = request.match_info["name"]
        check_profile(body.profile.apply_to(self._keys.find_by_name(name).profile), self._check)
        return _json(self._view(await self._keys.edit(name, body.profile.apply_to)))

    async def revoke(self, request: aioweb.Request) -> aioweb.Response:
        await self._keys.revoke(request.match_info["name"])
        return aioweb.Response(status=HTTPStatus.NO_CONTENT)

    def _view(self, record: NamedKeyRecord) -> NamedKeyView:
        key = record.key
        return NamedKeyView(
            key.name,
            key.scopes,
            key.max_sessions,
            key.requests_per_minute,
            record.created,
            record.last_used,
            self._count_sessions(key),
            record.profile,
        )


def named_key_routes(door: NamedKeysDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/keys",
            door.list_all,
            "List the named keys with their last use and their live sessions.",
            _TAG,
            responses={200: NamedKeyList},
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/keys",
            door.add,
            "Make a named key. The reply shows the key; nothing shows it later.",
            _TAG,
            request=NamedKeyRequest,
            responses={201: NewNamedKey},
            error_codes=(
                "invalid_json",
                "invalid_value",
                "key_exists",
                *PROFILE_ERRORS,
                "scope_not_held",
                "storage_failed",
                "too_many_keys",
            ),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/keys/{name}",
            door.edit,
            "Change the settings with which the sessions of a key begin. Fields that are left out"
            " keep their values.",
            _TAG,
            request=NamedKeyEdit,
            responses={200: NamedKeyView},
            error_codes=(
                "invalid_json",
                "invalid_value",
                "key_not_found",
                *PROFILE_ERRORS,
                "storage_failed",
            ),
            scope="manage",
        ),
        Route(
            "DELETE",
            "/v1/keys/{name}",
            door.revoke,
            "Revoke a named key: its sessions, requests and client secrets end at once.",
            _TAG,
            responses={204: None},
            error_codes=("key_not_found", "storage_failed"),
            scope="manage",
        ),
    )


def _read_request(body: bytes) -> NamedKeyRequest:
    """Decodes a request for a key. Raises RequestError, which lists the scopes if one is wrong."""
    try:
        return decode_json_body_or_empty(body, NamedKeyRequest)
    except RequestError as error:
        if error.param is None or not error.param.startswith("scopes"):
            raise
        known = ", ".join(SCOPES)
        raise RequestError(
            f"{error}; there are {known}", code=error.code, param=error.param
        ) from error


def _check_maker(scopes: tuple[KeyScope, ...]) -> None:
    """Raises Forbidden scope_not_held if a named key makes a key that opens more than itself."""
    maker = CALLER_KEY.get()
    if maker is None:
        return
    if more := [scope for scope in scopes if scope not in maker.scopes]:
        raise Forbidden(
            f"the key {maker.name!r} cannot make a key with the scope {more[0]!r}, which it does"
            " not have",
            code="scope_not_held",
        )


def _json(answer: object, status: HTTPStatus = HTTPStatus.OK) -> aioweb.Response:
    return aioweb.Response(
        status=status, body=msgspec.json.encode(answer), content_type=JSON, headers=_NO_STORE
    )
