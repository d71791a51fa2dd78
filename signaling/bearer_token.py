"""Where the gate puts the token of a request, for the doors to know what it opens.

No door reads a header for it: two readings may differ, and then a token opens what it may not.
"""

from aiohttp import web as aioweb

TOKEN = aioweb.RequestKey[str | None]("token")
"None: the request has none, or the server's own key."
