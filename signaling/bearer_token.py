"""Key under which the access gate stores a request's token, for the doors. No door reads the token
from a header itself: two parsers may differ, and then a token opens more than it may."""

from aiohttp import web as aioweb

TOKEN = aioweb.RequestKey[str | None]("token")
"Token of the request; None if it has none, or the server's own key."
