"""Deletion of a conversation by the page."""

from collections.abc import Callable

from aiohttp import web as aioweb

from core.http.routes import Route


def conversation_routes(forget: Callable[[str], None]) -> tuple[Route, ...]:
    """Returns the route that deletes a conversation.

    forget: forgets the conversation with this id, at once or when its connection ends.
    """

    async def delete(request: aioweb.Request) -> aioweb.Response:
        forget(request.match_info["id"])
        # The answer is the same for an unknown id: nobody learns which conversations there are.
        return aioweb.Response(status=204)

    return (
        Route(
            "DELETE",
            "/earshot/conversations/{id}",
            delete,
            "Forget a conversation with its history and settings: at once, or when its last"
            " connection ends.",
            "page",
            responses={204: None},
            scope="talk",
        ),
    )
