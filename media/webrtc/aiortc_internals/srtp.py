"""One direction of SRTP (RFC 3711), by libsrtp itself: for each packet pylibsrtp's way around it
makes a counter, checks types and looks names up, which takes as long as to encrypt.

Memory and keys stay pylibsrtp's: private names of its 1.0, checked when a call is made.
"""

from typing import Any

import pylibsrtp
from pylibsrtp import ERRORS, Error, Session

from media.webrtc.aiortc_internals.names import require_private_names

_TRAILER_BYTES = 144
"libsrtp's SRTP_MAX_TRAILER_LEN: what encryption may add."


class SrtpStream:
    """Of a session whose keys are agreed on. It uses the session's own buffer, at once."""

    def __init__(self, session: Session) -> None:
        """Raises EarshotError where pylibsrtp is another."""
        require_private_names(session, "_srtp", "_cdata", "_buffer")
        require_private_names(pylibsrtp, "ffi", "lib")
        library: Any = pylibsrtp
        of_session: dict[str, Any] = vars(session)
        self._kept = session  # it frees what is below
        self._context, self._data = of_session["_srtp"][0], of_session["_cdata"]
        self._buffer = of_session["_buffer"]
        self._capacity = len(self._data)
        self._size = library.ffi.new("int *")
        self._protect, self._unprotect = library.lib.srtp_protect, library.lib.srtp_unprotect

    def protect(self, packet: bytes) -> bytes:
        """RTP to SRTP. Raises pylibsrtp.Error; ValueError for what is too long."""
        return self._done(self._protect, packet, self._capacity - _TRAILER_BYTES)

    def unprotect(self, packet: bytes) -> bytes:
        """SRTP to RTP. Raises pylibsrtp.Error for what others sent, or comes twice; ValueError."""
        return self._done(self._unprotect, packet, self._capacity)

    def _done(self, function: Any, packet: bytes, most_bytes: int) -> bytes:
        length = len(packet)
        if length > most_bytes:
            raise ValueError(f"a packet of {length} bytes; {most_bytes} at most")
        size, buffer = self._size, self._buffer
        size[0] = length
        buffer[0:length] = packet
        if error := function(self._context, self._data, size):
            raise Error(ERRORS[error])
        done: bytes = buffer[0 : size[0]]
        return done
