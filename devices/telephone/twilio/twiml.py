"""Answers to a call that Twilio asks about: TwiML, the XML of its instructions. Pure."""

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

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
