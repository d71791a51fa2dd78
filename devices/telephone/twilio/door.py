"""The door for calls through Twilio.

Twilio asks with a POST what to do with a call (its webhook), and then opens the WebSocket that the
answer names. Both requests carry Twilio's signature, and nothing is read of them before it is
checked.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from urllib.parse import parse_qsl
from xml.sax.saxutils import quoteattr

from aiohttp import web as aioweb

from core.errors import Conflict, Forbidden, OverloadedError, RequestError
from core.ports import Clock, Metrics, WorkGuard
from devices.telephone.calls import RETRY_AFTER_S, TelephoneCalls
from devices.telephone.twilio.codec import MAX_MESSAGE_BYTES
from devices.telephone.twilio.line import TwilioLine
from devices.telephone.twilio.signature import (
    SIGNATURE_HEADER,
    STREAM_VALID_S,
    is_proven,
    is_signed,
    prove_call,
)

REJECT = '<Response><Reject reason="rejected"/></Response>'
"The call is not answered, and costs nothing."

BUSY = '<Response><Reject reason="busy"/></Response>'
"The caller hears the busy tone."


def connect_stream(url: str, parameters: Mapping[str, str]) -> str:
    """Returns the instruction to connect the call with a stream both ways. When the stream is
    closed, nothing follows, so Twilio hangs up. url: wss, without a query, which Twilio drops."""
    written = "".join(
        f"<Parameter name={quoteattr(name)} value={quoteattr(value)}/>"
        for name, value in parameters.items()
    )
    return (
        f"<Response><Connect><Stream url={quoteattr(url)}>{written}</Stream></Connect></Response>"
    )


logger = logging.getLogger(__name__)

CALL_PATH = "/telephone/twilio/call"
STREAM_PATH = "/telephone/twilio/stream"

MAX_FORM_BYTES = 16_384
"Largest form of the webhook. Twilio's have about 1 kB."

HEARTBEAT_S = 20.0
"Interval of pings, by which a lost connection is noticed."

CLOSE_TIMEOUT_S = 2.0
"Limit for Twilio's answer to a close frame."

FORM_CONTENT = "application/x-www-form-urlencoded"

MAX_FIELDS = 200
"Most fields of the form. Twilio's have about 30."

# Parameters of a stream.
CALLER, UNTIL, PROOF = "caller", "until", "proof"

FormFields = Sequence[tuple[str, str]]


class TwilioDoor:
    """Handlers of the door."""

    def __init__(
        self, calls: TelephoneCalls, clock: Clock, metrics: Metrics, guard: WorkGuard
    ) -> None:
        self._calls, self._clock, self._metrics, self._guard = calls, clock, metrics, guard
        self._settings = calls.settings
        self._call_sids: set[str] = set()
        "Calls that have a stream: a second one of the same call is not Twilio's."
        self._starting = 0
        "Streams that were opened and have not started."

    async def answer(self, request: aioweb.Request) -> aioweb.Response:
        """Handles the webhook, `POST /telephone/twilio/call`. Raises Forbidden, RequestError."""
        form = await _form_of(request)
        self._check_signature(request, "https", form)
        fields = dict(form)
        call_sid = fields.get("CallSid", "")
        if not call_sid:
            raise RequestError("the form needs CallSid", param="CallSid")
        twiml = self._instruction(request, fields.get("From", ""), call_sid)
        return aioweb.Response(text=twiml, content_type="text/xml")

    def _instruction(self, request: aioweb.Request, caller: str, call_sid: str) -> str:
        """Returns the TwiML for a call."""
        allowed = self._settings.allowed_callers
        if allowed and caller not in allowed:
            logger.warning("! telephone: refused a caller who is not in telephone.allowed_callers")
            self._metrics.count("earshot_errors", code="unknown_caller")
            return REJECT
        try:
            self._calls.check_capacity()
        except OverloadedError as error:
            self._metrics.count("earshot_errors", code=error.code)
            return BUSY
        until = int(self._clock.wall().timestamp()) + STREAM_VALID_S
        proof = prove_call(self._settings.twilio_auth_token, call_sid, caller, until)
        parameters = {CALLER: caller, UNTIL: str(until), PROOF: proof}
        return connect_stream(self._base(request, "wss") + STREAM_PATH, parameters)

    async def stream(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /telephone/twilio/stream`. Raises Forbidden, OverloadedError, RequestError
        before the upgrade."""
        self._check_signature(request, "wss")
        self._calls.check_capacity()
        ws = aioweb.WebSocketResponse(
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_MESSAGE_BYTES,
            compress=False,
            timeout=CLOSE_TIMEOUT_S,
        )
        if not ws.can_prepare(request).ok:
            raise RequestError("this path speaks WebSocket", code="websocket_expected")
        line = TwilioLine(ws)
        with ExitStack() as place:
            place.enter_context(self._starting_place())
            await ws.prepare(request)
            await self._guard(self._serve(line, place), "Twilio call")
        await line.hang_up()
        return ws

    async def _serve(self, line: TwilioLine, place: ExitStack) -> None:
        """Serves one call. `place`: among those that have not started. Raises EarshotError, also
        in an ExceptionGroup."""
        start = await line.read_start()
        place.close()
        if start is None:
            return
        given, token = start.parameters, self._settings.twilio_auth_token
        caller, now = given.get(CALLER, ""), self._clock.wall().timestamp()
        proof, until = given.get(PROOF, ""), given.get(UNTIL, "")
        if not is_proven(token, proof, start.call_sid, caller, until, now):
            raise Forbidden(
                "this stream does not come from an answer of ours to Twilio's webhook",
                code="unknown_call",
            )
        if start.call_sid in self._call_sids:
            raise Conflict("this call has a stream already", code="unknown_call")
        self._call_sids.add(start.call_sid)
        try:
            await self._calls.serve(line, "twilio", caller)
        finally:
            self._call_sids.remove(start.call_sid)

    def _check_signature(self, request: aioweb.Request, scheme: str, form: FormFields = ()) -> None:
        """Raises Forbidden."""
        signature = request.headers.get(SIGNATURE_HEADER, "")
        url = self._base(request, scheme) + request.raw_path
        if not is_signed(self._settings.twilio_auth_token, signature, url, form):
            logger.warning(
                "! telephone: refused a request that Twilio did not sign for %s; is"
                " telephone.twilio_url the address that Twilio uses?",
                self._base(request, scheme),
            )
            raise Forbidden(
                f"{SIGNATURE_HEADER} is missing or wrong", code="invalid_twilio_signature"
            )

    def _base(self, request: aioweb.Request, scheme: str) -> str:
        """Returns the URL of this server as Twilio knows it, without a slash at its end.

        Without the setting it is the host that Twilio asked for: who forges that has no signature
        for it.
        """
        public = self._settings.twilio_url or f"https://{request.host}"
        return f"{scheme}://{public.partition('://')[2].rstrip('/')}"

    @contextmanager
    def _starting_place(self) -> Iterator[None]:
        """Raises OverloadedError while as many streams as calls are allowed have not started."""
        if self._starting >= self._settings.max_calls:
            raise OverloadedError("too many calls begin at once", retry_after_s=RETRY_AFTER_S)
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1


async def _form_of(request: aioweb.Request) -> FormFields:
    """Returns the fields of the webhook's form. Raises RequestError."""
    if request.content_type != FORM_CONTENT:
        raise RequestError(f"the body must be {FORM_CONTENT}, as Twilio's webhooks send it")
    try:
        text = (await request.read()).decode()
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise RequestError(f"the form is not UTF-8, or has over {MAX_FIELDS} fields") from error
