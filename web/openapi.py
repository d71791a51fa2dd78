"""Builds the OpenAPI document from the doors' routes, with schemas from their types."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from core.http.routes import JSON, Route

OPENAPI_VERSION = "3.1.0"
SCHEMA_REF = "#/components/schemas/{name}"
MULTIPART = "multipart/form-data"

_PARAMETER = re.compile(r"\{([^{}:]+)(?::[^{}]*)?\}")


class ErrorDetail(msgspec.Struct, frozen=True):
    """An error, in the form of the OpenAI REST API."""

    message: str
    type: str
    "`invalid_request_error` (change the request) or `server_error` (try again, or report it)."
    code: str
    "Stable code, for programs."
    param: str | None = None
    "Field that caused the error, as a dotted path."


class ErrorBody(msgspec.Struct, frozen=True):
    """Body of every answer with a status above 399."""

    error: ErrorDetail


def document(
    routes: Sequence[Route], *, title: str, version: str, description: str
) -> Mapping[str, Any]:
    """Returns the OpenAPI document of these routes. Its only security scheme is the key as a bearer
    token."""
    types = list(dict.fromkeys(_types(routes)))
    type_schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMA_REF)
    schemas = dict(zip(types, type_schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": title, "version": version, "description": description},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
        "tags": [{"name": tag} for tag in sorted({route.tag for route in routes})],
    }


def _types(routes: Iterable[Route]) -> Iterable[type]:
    """Yields the types of all bodies, with repetitions."""
    yield ErrorBody
    for route in routes:
        if route.request is not None:
            yield route.request
        yield from (body for body in route.responses.values() if body is not None)


def _operation(route: Route, schemas: Mapping[type, Any]) -> dict[str, object]:
    operation: dict[str, object] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
    }
    if body := _request_body(route, schemas):
        operation["requestBody"] = body
    # OpenAPI 3.1: roles that are needed, for a scheme that has no scopes of its own
    operation["security"] = [] if route.is_public else [{"key": [route.scope]}]
    return {name: value for name, value in operation.items() if value != [] or name == "security"}


def _operation_id(route: Route) -> str:
    """Returns the operation's id: `POST /v1/realtime/calls/{id}` becomes
    `post_v1_realtime_calls_id`."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", route.path).strip("_") or "page"
    return f"{route.method.lower()}_{words}"


def _parameters(route: Route) -> list[dict[str, object]]:
    path_parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    query_parameters = [
        {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}
        for name, description in route.query.items()
    ]
    return path_parameters + query_parameters


def _request_body(route: Route, schemas: Mapping[type, Any]) -> dict[str, object] | None:
    content_types = route.request_content_types or ((JSON,) if route.request else ())
    if not content_types:
        return None
    typed_content = (JSON, MULTIPART)
    return {
        "required": True,
        "content": {
            content_type: {
                "schema": schemas[route.request]
                if route.request is not None and content_type in typed_content
                else {"type": "string"}
            }
            for content_type in content_types
        },
    }


def _responses(route: Route, schemas: Mapping[type, Any]) -> dict[str, object]:
    responses: dict[str, object] = {}
    for status, body in sorted(route.responses.items()):
        response: dict[str, object] = {"description": route.summary if status < 400 else "Not now."}
        if body is not None:
            response["content"] = {JSON: {"schema": schemas[body]}}
        elif route.response_content_type != JSON:
            response["content"] = {route.response_content_type: {"schema": {"type": "string"}}}
        if route.response_headers:
            response["headers"] = {
                name: {"description": description, "schema": {"type": "string"}}
                for name, description in route.response_headers.items()
            }
        responses[str(status)] = response
    codes = f" Codes: {', '.join(route.error_codes)}." if route.error_codes else ""
    responses["default"] = {
        "description": f"An error, named by its code.{codes}",
        "content": {JSON: {"schema": schemas[ErrorBody]}},
    }
    return responses
