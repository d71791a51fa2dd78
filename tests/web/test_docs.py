"""The API's description is valid and complete, and its page works without any other server."""

import re
from typing import Any

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator

from core.http.routes import Route
from web.docs import INDEX_HTML, docs_routes
from web.openapi import document


class Question(msgspec.Struct):
    """A question."""

    text: str
    limit: int | None = None


class Reply(msgspec.Struct):
    answers: list[Question]


async def nothing(_: Any) -> None: ...


ROUTES = (
    Route(
        "POST",
        "/ask/{name}",
        nothing,
        "Ask.",
        "asking",
        request=Question,
        responses={201: Reply},
        response_headers={"Location": "Where it is."},
        query={"language": "In which language."},
        error_codes=("too_hard",),
    ),
    Route(
        "POST",
        "/upload",
        nothing,
        "Send a form or raw text.",
        "asking",
        request=Question,
        request_content_types=("multipart/form-data", "application/sdp"),
        response_content_type="application/sdp",
    ),
    Route("GET", "/open", nothing, "Open to all.", "other", is_public=True),
)


def described() -> Any:
    made = document(ROUTES, title="T", version="1", description="D")
    return msgspec.json.decode(msgspec.json.encode(made))


def test_the_document_is_valid() -> None:
    OpenAPIV31SpecValidator(described()).validate()


def test_types_become_schemas() -> None:
    found = described()
    ask = found["paths"]["/ask/{name}"]["post"]
    schema = {"$ref": "#/components/schemas/Question"}
    assert ask["requestBody"]["content"] == {"application/json": {"schema": schema}}
    assert [(p["name"], p["in"]) for p in ask["parameters"]] == [
        ("name", "path"),
        ("language", "query"),
    ]
    assert ask["responses"]["201"]["headers"]["Location"]["description"] == "Where it is."
    assert "too_hard" in ask["responses"]["default"]["description"]
    assert set(found["components"]["schemas"]) >= {"Question", "Reply", "ErrorBody"}
    upload = found["paths"]["/upload"]["post"]
    assert upload["requestBody"]["content"]["multipart/form-data"]["schema"] == schema
    assert upload["requestBody"]["content"]["application/sdp"]["schema"] == {"type": "string"}
    assert found["security"] == [{"key": []}]
    assert found["paths"]["/open"]["get"]["security"] == []


def test_the_page_works_offline_and_loads_our_description() -> None:
    own = docs_routes(ROUTES, version="1")
    assert [route.path for route in own] == ["/openapi.json", "/docs", "/docs/{name}"]
    assert not re.search(r"https?://", INDEX_HTML)
    assert [route.is_public for route in own] == [False, True, True]
