"""Parameters of a question to the assistant, with WIS's names."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web as aioweb

from core.errors import Forbidden
from devices.willow.wis.params import number_of, text_of, whole_of
from devices.willow.wis.tts import read_language
from pipeline.session.one_shot import OneShotRequest
from pipeline.shared.settings import DEFAULT

MAX_NEW_TOKENS = range(1, 16_385)
"Allowed values of `max_new_tokens`."

TEMPERATURES = (0.0, 2.0)
"Lowest and highest `temperature`."

TOP_P = (0.01, 1.0)
"Lowest and highest `top_p`. The lowest is not 0, because servers refuse 0."

PENALTIES = (0.5, 2.0)
"Lowest and highest `repetition_penalty`."

DEFAULT_TEMPERATURE = 0.7
"""WIS's temperature, used if neither the query nor this server's settings set one. WIS's 512 tokens
are the default of our engines. Its top_p and its penalty of 1.15 are not used: they suited one
model, and a penalty on earlier text damages tool calls."""

MAX_ID_CHARS = 128
"Longest `conversation_id`, in characters."

FOREIGN = ("cross-site", "same-site")
"Values of `Sec-Fetch-Site` for a request that a page of another site has caused."


def read_question(query: Mapping[str, Any], text: str) -> OneShotRequest:
    """Reads `max_new_tokens`, `temperature`, `top_p`, `repetition_penalty`, and Earshot's own
    `language`, `model` and `conversation_id`. Raises RequestError."""
    return OneShotRequest(
        text,
        conversation_id=text_of(query, "conversation_id")[:MAX_ID_CHARS] or None,
        language=read_language(query),
        model=text_of(query, "model") or DEFAULT,
        temperature=number_of(query, "temperature", *TEMPERATURES),
        max_output_tokens=whole_of(query, "max_new_tokens", MAX_NEW_TOKENS),
        top_p=number_of(query, "top_p", *TOP_P),
        repetition_penalty=number_of(query, "repetition_penalty", *PENALTIES),
        default_temperature=DEFAULT_TEMPERATURE,
    )


def check_site(request: aioweb.Request) -> None:
    """Raises Forbidden if the request may come from a page of another site.

    These GET requests may switch a light or speak. An image, sound or link in a page of another
    site sends them without an Origin, which the gate would check, but with a password that the
    browser remembers.
    """
    headers = request.headers
    if "Origin" in headers or not _may_be_foreign(headers, request.host):
        return
    raise Forbidden(
        "a page of another site cannot use this path; only scripts that send the key can",
        code="forbidden_origin",
    )


def _may_be_foreign(headers: Mapping[str, str], host: str) -> bool:
    """Returns True if another site's page may have caused the request.

    Browsers send `Sec-Fetch-Site` to https and loopback addresses only. At other addresses, the
    request of a browser counts as foreign, unless its Referer is one of our pages, or it has a key
    that no browser sends by itself.
    """
    if site := headers.get("Sec-Fetch-Site"):
        return site in FOREIGN
    is_browser = headers.get("User-Agent", "").startswith("Mozilla/")
    is_bearer = headers.get("Authorization", "").lower().startswith("bearer ")
    has_own_key = is_bearer or "X-API-Key" in headers
    own_pages = (f"http://{host}/", f"https://{host}/")
    return is_browser and not has_own_key and not headers.get("Referer", "").startswith(own_pages)
