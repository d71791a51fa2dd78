"""WHIP over HTTP (RFC 9725): publish, trickle, end; the transcript as server-sent events."""

from http import HTTPStatus

from aiohttp import web as aioweb
from multidict import CIMultiDict

from core.errors import RequestError
from core.ports import Metrics, WorkGuard
from pipeline.session.sessions import Sessions
from signaling.ice_servers import links
from signaling.whip.offer import SDP, read_offer, settings_of
from signaling.whip.publication import Publication, Publications, WhipSettings
from signaling.whip.sdp_fragment import check_if_match, read_fragment
from signaling.whip.sse import last_event_id, stream

SDP_FRAGMENT = "application/trickle-ice-sdpfrag"

PATH = "/whip"


class WhipDoor:
    """WHIP door with its HTTP handlers. `run` must be active while there are publications;
    cancelling it ends them."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        guard: WorkGuard,
        settings: WhipSettings | None = None,
    ) -> None:
        self._settings = settings = settings or WhipSettings()
        self._metrics = metrics
        self.publications = Publications(sessions, metrics, guard, settings)

    async def run(self) -> None:
        await self.publications.run()

    async def publish(self, request: aioweb.Request) -> aioweb.Response:
        """Answers an SDP offer and starts the publication, which outlives the request."""
        _require_content_type(request, SDP)
        offer = read_offer(await request.read(), request.query)
        settings = settings_of(request.query, self._settings.initial_settings())
        publication, answer = await self.publications.start(offer, settings)
        headers = CIMultiDict({"Location": f"{PATH}/{publication.id}", "ETag": publication.etag})
        for link in links(self._settings.peer.ice.minted(publication.id)):
            headers.add("Link", link)
        return aioweb.Response(
            status=HTTPStatus.CREATED, text=answer, content_type=SDP, headers=headers
        )

    async def trickle(self, request: aioweb.Request) -> aioweb.Response:
        """Takes candidates that the client found after its offer, or restarts ICE (RFC 9725,
        4.3)."""
        publication = self._publication(request)
        _require_content_type(request, SDP_FRAGMENT)
        wants_restart = check_if_match(request.headers.get("If-Match"), publication.etag)
        fragment = read_fragment(await request.read())
        if wants_restart:
            return aioweb.Response(
                text=await publication.restart(fragment),
                content_type=SDP_FRAGMENT,
                headers={"ETag": publication.etag},
            )
        await publication.trickle(fragment)
        return aioweb.Response(status=HTTPStatus.NO_CONTENT)

    async def end(self, request: aioweb.Request) -> aioweb.Response:
        """Ends the publication; answers when everything is freed. If-Match has no meaning here
        (4.2)."""
        await self._publication(request).end()
        return aioweb.Response(status=HTTPStatus.OK)

    async def events(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Streams the transcript as server-sent events."""
        publication = self._publication(request)
        with publication.feed.open_reader(last_event_id(request.headers)) as entries:
            return await stream(request, entries, self._metrics)

    async def probe(self, _: aioweb.Request) -> aioweb.Response:
        """Answers GET and HEAD of the endpoint, to show that it exists (4.2)."""
        return aioweb.Response(status=HTTPStatus.NO_CONTENT)

    async def probe_publication(self, request: aioweb.Request) -> aioweb.Response:
        """Answers if the publication is live."""
        self._publication(request)
        return aioweb.Response(status=HTTPStatus.NO_CONTENT)

    async def options(self, _: aioweb.Request) -> aioweb.Response:
        return _options("GET, HEAD, OPTIONS, POST", "Accept-Post", SDP)

    async def publication_options(self, _: aioweb.Request) -> aioweb.Response:
        return _options("DELETE, GET, HEAD, OPTIONS, PATCH", "Accept-Patch", SDP_FRAGMENT)

    def _publication(self, request: aioweb.Request) -> Publication:
        return self.publications.find(request.match_info["publication_id"])


def _require_content_type(request: aioweb.Request, content_type: str) -> None:
    if request.content_type != content_type:
        raise RequestError(
            f"The body must be {content_type}, not {request.content_type[:100]}.",
            code="unsupported_media_type",
        )


def _options(allowed: str, header: str, content_type: str) -> aioweb.Response:
    return aioweb.Response(status=HTTPStatus.OK, headers={"Allow": allowed, header: content_type})
