"""Private names of other libraries that this project uses: one table, and its check.

A private name may change with any release. The server looks for all of them when it starts, and a
test looks for them in the installed releases. Without one of CALL_NAMES calls run through aiortc's
public interface (`media/webrtc/rtp/call_path.py`). Without one of HTTP_NAMES the server does not
start, because it would lack protections.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True, slots=True)
class PrivateName:
    """One name that a library does not document, but that we use or replace."""

    owner: str
    "Module of the name, or `module:Class` for an attribute or a method of a class."
    name: str
    "Two leading underscores mean an attribute that Python mangles with the name of its class."
    use: str
    "Purpose for which we use the name."

    @property
    def attribute(self) -> str:
        """The name as Python stores it."""
        _, _, kind = self.owner.partition(":")
        return f"_{kind}{self.name}" if kind and self.name.startswith("__") else self.name

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.name}"


_RECEIVER = "aiortc.rtcrtpreceiver:RTCRtpReceiver"
_SENDER = "aiortc.rtcrtpsender:RTCRtpSender"
_DTLS = "aiortc.rtcdtlstransport:RTCDtlsTransport"
_ICE = "aiortc.rtcicetransport:RTCIceTransport"
_GATHERER = "aiortc.rtcicetransport:RTCIceGatherer"
_CONNECTION = "aioice.ice:Connection"
_STUN = "aioice.ice:StunProtocol"

CALL_RELEASES: Mapping[str, str] = {"aiortc": "1.16", "aioice": "0.13"}
"""Releases in which CALL_NAMES were read. In another one a name may exist and mean something
else."""

CALL_NAMES = (
    PrivateName(_RECEIVER, "__jitter_buffer", "replaced: passes encoded packets to us"),
    PrivateName("aiortc.jitterbuffer:JitterBuffer", "add", "method that our replacement has"),
    PrivateName(_RECEIVER, "__remote_streams", "counts packets that do not pass aiortc"),
    PrivateName("aiortc.rtcrtpreceiver:StreamStatistics", "add", "counts one of these packets"),
    PrivateName(_RECEIVER, "_enabled", "packets are dropped while it is false"),
    PrivateName(_RECEIVER, "_run_rtcp", "wrapped: an error in it must not block hanging up"),
    PrivateName(_RECEIVER, "__rtcp_exited", "set after such an error"),
    PrivateName(_RECEIVER, "setTransport", "wrapped: limits the sources of the new transport"),
    PrivateName(_SENDER, "_run_rtp", "replaced: sends packets that we encoded and paced"),
    PrivateName(_SENDER, "__rtp_started", "set for aiortc when our sending starts"),
    PrivateName(_SENDER, "__rtp_exited", "set for aiortc when our sending has ended"),
    PrivateName(_SENDER, "__mid", "id of the media section, in each packet"),
    PrivateName(_SENDER, "__rtp_header_extensions_map", "header extensions of each packet"),
    PrivateName(_SENDER, "_ssrc", "source of our packets"),
    PrivateName(_SENDER, "__ntp_timestamp", "written for aiortc's sender reports"),
    PrivateName(_SENDER, "__rtp_timestamp", "written for aiortc's sender reports"),
    PrivateName(_SENDER, "__octet_count", "written for aiortc's sender reports"),
    PrivateName(_SENDER, "__packet_count", "written for aiortc's sender reports"),
    PrivateName(_DTLS, "_rx_srtp", "decrypts packets that do not pass aiortc"),
    PrivateName(_DTLS, "_tx_srtp", "encrypts packets that we send"),
    PrivateName(_DTLS, "__rx_bytes", "counts what we receive, for aiortc's statistics"),
    PrivateName(_DTLS, "__rx_packets", "counts what we receive, for aiortc's statistics"),
    PrivateName(_DTLS, "__tx_bytes", "counts what we send, for aiortc's statistics"),
    PrivateName(_DTLS, "__tx_packets", "counts what we send, for aiortc's statistics"),
    PrivateName(_DTLS, "_handle_rtp_data", "wrapped: drops packets of too many sources"),
    PrivateName(_DTLS, "_handle_rtcp_data", "wrapped: drops reports of too many sources"),
    PrivateName(_DTLS, "_ssl", "shows the certificate after a failed handshake"),
    PrivateName(_ICE, "_connection", "the aioice connection; replaced by an ICE restart"),
    PrivateName(_ICE, "_recv", "replaced by an ICE restart"),
    PrivateName(_ICE, "_send", "replaced by an ICE restart"),
    PrivateName(_GATHERER, "_connection", "the aioice connection; replaced by an ICE restart"),
    PrivateName(_CONNECTION, "_queue", "audio is taken before it; moved by an ICE restart"),
    PrivateName(_CONNECTION, "_nominated", "the candidate pair over which we send"),
    PrivateName(_CONNECTION, "_protocols", "sockets that we opened, which aioice closes"),
    PrivateName(_CONNECTION, "_closing", "true when ICE is over"),
    PrivateName(_CONNECTION, "_transport_policy", "copied to the connection of an ICE restart"),
    PrivateName(_CONNECTION, "_event_waiter", "moved by an ICE restart"),
    PrivateName(_CONNECTION, "_query_consent_task", "cleared before we close the connection"),
    PrivateName(_CONNECTION, "get_component_candidates", "replaced: we gather candidates"),
    PrivateName(_CONNECTION, "query_consent", "replaced: a check may take longer"),
    PrivateName(_CONNECTION, "data_received", "takes datagrams of our sockets"),
    PrivateName(_STUN, "datagram_received", "replaced: audio is not tried as STUN"),
    PrivateName(_STUN, "close", "replaced for relays: has a time limit"),
    PrivateName("aioice.ice", "relayed_candidate", "asks a TURN server for an address"),
    PrivateName("aioice.ice", "server_reflexive_candidate", "asks a STUN server"),
)
"""Names that the fast path of calls uses. Code that uses them is in
`media/webrtc/aiortc_internals/`."""


_HTTP = "aiohttp.web_protocol:RequestHandler"
_HTTP_BASE = "aiohttp.base_protocol:BaseProtocol"

HTTP_NAMES = (
    PrivateName("aiohttp.web_runner:AppRunner", "_make_server", "replaced: makes our connections"),
    PrivateName(_HTTP, "_messages", "finds the body of a request, for its time limit"),
    PrivateName(_HTTP, "_request_count", "notices a new request"),
    PrivateName(_HTTP, "_current_request", "the next header may wait while this is answered"),
    PrivateName(_HTTP, "_lingering_time", "set to 0: the rest of a refused body is not read"),
    PrivateName(_HTTP_BASE, "_upgraded", "a WebSocket has limits of its own"),
    PrivateName(_HTTP_BASE, "_loop", "clock and timers of the connection"),
    PrivateName(_HTTP_BASE, "_reading_paused", "a client is not late while we do not read"),
    PrivateName(_HTTP_BASE, "_buffer_paused", "a client is not late while we do not read"),
    PrivateName(_HTTP_BASE, "_pause_transport_reading", "stops after too much of a refused body"),
    PrivateName(_HTTP_BASE, "_resume_transport_reading", "drops the rest of a refused body"),
    PrivateName("aiohttp.web_request:BaseRequest", "_client_max_size", "size limit of each route"),
    PrivateName(
        "aiohttp.web_response:StreamResponse",
        "_prepare_headers",
        "wrapped: no Server header in the answer to invalid HTTP",
    ),
)
"""Names of aiohttp that `server/http/` uses. None of them is there to save time: they limit what a
client can cost, and aiohttp has no public way for that."""


@cache
def call_path_obstacles() -> tuple[str, ...]:
    """Says what the fast path of calls lacks in the installed libraries; empty if it can be used.
    Opens no socket."""
    return (*other_releases(CALL_RELEASES), *missing_names(CALL_NAMES))


def other_releases(releases: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a note on each package whose installed release is not the one given, such as
    `aiortc 1.17.0 is not 1.16`."""
    installed = {package: _release(package) for package in releases}
    return tuple(
        f"{package} {installed[package] or 'is not installed and'} is not {release}"
        for package, release in releases.items()
        if not installed[package].startswith(f"{release}.")
    )


def missing_names(names: Iterable[PrivateName]) -> tuple[str, ...]:
    """Returns the names that the installed libraries do not have."""
    return tuple(f"{name} is missing" for name in names if not _exists(name))


def _release(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _exists(name: PrivateName) -> bool:
    """True if the owner has the name. An attribute of objects exists if the class's `__init__`
    mentions it, so no object has to be made."""
    module, _, kind = name.owner.partition(":")
    try:
        owner = import_module(module)
        owner = getattr(owner, kind) if kind else owner
    except (ImportError, AttributeError):
        return False
    if hasattr(owner, name.attribute):
        return True
    code = getattr(vars(owner).get("__init__"), "__code__", None)
    return code is not None and name.attribute in code.co_names
