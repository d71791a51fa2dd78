"""The input from telephone systems: the byte stream of AudioSocket, cut anywhere, and the messages
of Twilio Media Streams."""

from core.errors import RemoteProtocolError
from devices.telephone.audiosocket.framing import (
    MAX_ERROR_BYTES,
    MAX_PAYLOAD_BYTES,
    AudioSocketDecoder,
    AudioSocketMessage,
    OtherMessage,
    PeerError,
    Slin,
    encode_message,
)
from devices.telephone.twilio.codec import (
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARS,
    MAX_SOUND_BYTES,
    OtherStreamMessage,
    StreamMark,
    StreamSound,
    StreamStarted,
    decode_stream_message,
    encode_sound,
)
from tests.devices.telephone.twilio.vectors import VECTORS as TWILIO_VECTORS
from tests.devices.telephone.vectors import ALL_BYTES, VECTORS
from tests.fuzz.target import Target


def reading_audiosocket(data: bytes) -> None:
    """Checks that the cuts of a stream change nothing, and that each message is bounded and is
    written as it was read."""
    whole, error = _read([data])
    cut = len(data) // 3
    assert _read([data[:cut], data[cut : 2 * cut], data[2 * cut :]]) == (whole, error)
    assert len(error) < 200
    for message in whole:
        match message:
            case OtherMessage():
                continue
            case Slin(pcm=pcm):
                assert len(pcm) <= MAX_PAYLOAD_BYTES
            case PeerError(code=code):
                assert len(code) <= MAX_ERROR_BYTES
            case _:
                pass
        assert list(AudioSocketDecoder().receive_data(encode_message(message))) == [message]


def _read(pieces: list[bytes]) -> tuple[list[AudioSocketMessage], str]:
    """Returns the messages up to the first error, and the error's text."""
    decoder, found = AudioSocketDecoder(), list[AudioSocketMessage]()
    try:
        for piece in pieces:
            for message in decoder.receive_data(piece):
                found.append(message)
    except RemoteProtocolError as error:
        return found, str(error)
    return found, ""


def reading_twilio(data: bytes) -> None:
    """Checks that each message is bounded, and that sound is written as it was read."""
    try:
        message = decode_stream_message(data)
    except RemoteProtocolError as error:
        assert len(str(error)) < 200
        return
    assert len(data) <= MAX_MESSAGE_BYTES
    match message:
        case StreamSound(mu_law=mu_law):
            assert len(mu_law) <= MAX_SOUND_BYTES
            again = encode_sound("MZ", mu_law)
            assert len(again) > MAX_MESSAGE_BYTES or decode_stream_message(again) == message
        case StreamStarted(stream_sid=stream_sid, call_sid=call_sid):
            assert max(len(stream_sid), len(call_sid)) <= MAX_NAME_CHARS
        case StreamMark(name=text) | OtherStreamMessage(event=text):
            assert len(text) <= MAX_NAME_CHARS
        case _:
            pass


TARGETS = (
    Target(
        name="audiosocket",
        one_input=reading_audiosocket,
        seeds=(ALL_BYTES, *(bytes.fromhex(wire) for wire, _ in VECTORS)),
    ),
    Target(
        name="twilio",
        one_input=reading_twilio,
        seeds=tuple(text.encode() for text, _ in TWILIO_VECTORS),
        is_json=True,
    ),
)
