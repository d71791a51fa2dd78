"""Wyoming's service "handle": answers the event `transcript` with the assistant's answer."""

from contextlib import aclosing

from wyoming.event import Event
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop

from devices.wyoming.framing import WyomingStream
from devices.wyoming.requests import conversation_of, read_text, text_language
from pipeline.session.one_shot import OneShotRequest, OneShotResponses


async def serve_handle(wire: WyomingStream, event: Event, responses: OneShotResponses) -> None:
    """Sends the answer as it is written, then as a whole, which is all that older clients read.

    The whole answer has no fillers.
    Raises EngineError, OverloadedError, RequestError, Conflict, ConnectionError.
    """
    question = OneShotRequest(
        " ".join(read_text(event).split()),
        conversation_id=conversation_of(event),
        language=text_language(event),
        is_spoken=True,
    )
    context = event.data.get("context")
    async with responses.open(question) as response, aclosing(response.texts()) as texts:
        await wire.send(HandledStart())
        async for text in texts:
            await wire.send(HandledChunk(text=text))
    await wire.send(Handled(text=response.answer.strip(), context=context), HandledStop())
