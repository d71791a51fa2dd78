"""Lists the routes of the MCP server."""

from core.http.routes import Route
from web.mcp.door import EVENTS, McpDoor

PATH = "/mcp"

MAX_BODY_BYTES = 256 * 1024
"Largest message. Arguments of tools are words and numbers; a long announcement has 1 kB."

_TAG = "mcp"


def mcp_routes(door: McpDoor) -> tuple[Route, ...]:
    """Returns the routes. Errors of the door itself have JSON-RPC's form."""
    errors = ("missing_scope", "too_large", "too_many_requests")
    return (
        Route(
            "POST",
            PATH,
            door.post,
            "Send one JSON-RPC message of the Model Context Protocol.",
            _TAG,
            scope="talk",
            error_codes=errors,
            max_body_bytes=MAX_BODY_BYTES,
            responses={200: None, 202: None},
            response_headers={"Mcp-Session-Id": "Id of the session that initialize began."},
        ),
        Route(
            "GET",
            PATH,
            door.listen,
            "Wait for changes of the tools, in a session.",
            _TAG,
            scope="talk",
            error_codes=("missing_scope", "too_many_requests", "too_many_watchers"),
            response_content_type=EVENTS,
        ),
        Route(
            "DELETE",
            PATH,
            door.end,
            "End a session.",
            _TAG,
            scope="talk",
            error_codes=("missing_scope", "too_many_requests"),
            responses={204: None},
        ),
    )
