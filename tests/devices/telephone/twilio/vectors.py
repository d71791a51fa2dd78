"""Messages of Twilio Media Streams as its documentation shows them."""

from devices.telephone.twilio.codec import (
    OtherStreamMessage,
    StreamConnected,
    StreamKey,
    StreamMark,
    StreamMessage,
    StreamSound,
    StreamStarted,
    StreamStopped,
)

START = (
    '{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ1",'
    '"callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw",'
    '"sampleRate":8000,"channels":1},"customParameters":{"FirstName":"Jane"}},"streamSid":"MZ1"}'
)
MEDIA = (
    '{"event":"media","sequenceNumber":"4","media":{"track":"inbound","chunk":"2",'
    '"timestamp":"5","payload":"/wB/"},"streamSid":"MZ1"}'
)
VECTORS: list[tuple[str, StreamMessage]] = [
    ('{"event":"connected","protocol":"Call","version":"1.0.0"}', StreamConnected()),
    (START, StreamStarted("MZ1", "CA1", {"FirstName": "Jane"})),
    (MEDIA, StreamSound(b"\xff\x00\x7f")),
    (MEDIA.replace("inbound", "outbound"), OtherStreamMessage("media of another track")),
    (
        (
            '{"event":"dtmf","streamSid":"MZ1","sequenceNumber":"5",'
            '"dtmf":{"track":"inbound_track","digit":"1"}}'
        ),
        StreamKey("1"),
    ),
    (
        '{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{"name":"my label"}}',
        StreamMark("my label"),
    ),
    (
        (
            '{"event":"stop","sequenceNumber":"5","stop":{"accountSid":"AC1","callSid":"CA1"},'
            '"streamSid":"MZ1"}'
        ),
        StreamStopped(),
    ),
    ('{"event":"new","new":{}}', OtherStreamMessage("new")),
]
