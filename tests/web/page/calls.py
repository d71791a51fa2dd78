"""The events of a call, and the page that shows them."""

from typing import Any

from playwright.sync_api import Page, expect

Json = dict[str, Any]


TRANSCRIPTION = "conversation.item.input_audio_transcription"


def user(item: str, text: str | None = None) -> Json:
    part = {"type": "input_audio", "transcript": None}
    if text:
        part = {"type": "input_text", "text": text}
    item_json = {"id": item, "type": "message", "role": "user", "content": [part]}
    return {"type": "conversation.item.added", "item": item_json}


def spoken(item: str, text: str) -> list[Json]:
    return [
        {"type": "input_audio_buffer.speech_started", "item_id": item, "audio_start_ms": 0},
        {"type": "input_audio_buffer.speech_stopped", "item_id": item, "audio_end_ms": 900},
        {"type": "input_audio_buffer.committed", "item_id": item},
        user(item),
        {"type": f"{TRANSCRIPTION}.completed", "item_id": item, "transcript": text},
    ]


def created(response: str) -> Json:
    return {"type": "response.created", "response": {"id": response, "status": "in_progress"}}


def said(response: str, text: str) -> Json:
    name = "response.output_audio_transcript.delta"
    return {"type": name, "response_id": response, "delta": text}


def answer(response: str, text: str, status: str = "completed") -> Json:
    content = [{"type": "output_audio", "transcript": text}]
    item = {"type": "message", "role": "assistant", "status": status, "content": content}
    return {"type": "response.output_item.done", "response_id": response, "item": item}


def done(response: str, status: str = "completed", **details: Any) -> Json:
    body: Json = {"id": response, "status": status, "output": [], "status_details": details or None}
    return {"type": "response.done", "response": body}


def tool_called(response: str, name: str, arguments: str, result: str) -> list[Json]:
    """A call of the server's tool in this response, and its result."""
    call = {"type": "function_call", "call_id": name, "name": name, "arguments": arguments}
    output = {"type": "function_call_output", "call_id": name, "output": result}
    event = {"type": "earshot.tool", "response_id": response}
    return [{**event, "item": call}, {**event, "item": output}]


def traced(
    response: str | None, item: str | None, status: str, *spans: tuple[str, int, int]
) -> Json:
    stages = [{"stage": name, "start_ms": a, "end_ms": b} for name, a, b in spans]
    latency = spans[-1][2] if spans and status == "answered" else None
    turn = {"id": "t", "item_id": item, "response_id": response, "status": status}
    return {
        "type": "earshot.turn",
        "turn": {**turn, "response_latency_ms": latency, "stages": stages},
    }


STAGES = (
    ("endpoint_wait", 0, 400),
    ("asr", 80, 430),
    ("llm", 430, 436),
    ("tts", 436, 450),
    ("playout", 450, 470),
)


def is_in(page: Page, state: str) -> None:
    expect(page.locator("html")).to_have_attribute("data-state", state)


def say(page: Page, *events: Json) -> None:
    page.evaluate("(events) => calls.at(-1).say(...events)", list(events))


def sent(page: Page) -> list[Json]:
    events: list[Json] = page.evaluate("calls.at(-1).sent")
    return events


def opened(page: Page) -> None:
    """Opens the page and starts a hands-free call."""
    page.goto("/")
    page.get_by_test_id("mic").click()
    is_in(page, "listening")
    conversation = {"type": "realtime", "earshot": {"conversation_id": "conv_7"}}
    say(page, {"type": "session.created", "session": conversation})


def a_turn(number: int, question: str, reply: str) -> list[Json]:
    item, response = f"item_{number}", f"resp_{number}"
    return [
        *spoken(item, question),
        created(response),
        said(response, reply),
        {"type": "output_audio_buffer.started", "response_id": response},
        traced(response, item, "answered", *STAGES),
        answer(response, reply),
        done(response),
        {"type": "output_audio_buffer.stopped", "response_id": response},
    ]
