"""SRTP (RFC 3711) in one direction, by calling libsrtp directly.

For each packet pylibsrtp's own methods create a counter, check types and look up names, which takes
as long as the encryption itself. Memory and keys still belong to pylibsrtp: private names of its
version 1.0 are used; `core.private_names` lists and checks them.
"""

from typing import Any

import pylibsrtp
from pylibsrtp import ERRORS, Error, Session

_TRAILER_BYTES = 144
"Most bytes that encryption adds: libsrtp's SRTP_MAX_TRAILER_LEN."


class SrtpStream:
    """Encrypts or decrypts packets of a session whose keys are agreed on. It uses the session's own
    buffer, and only during each call."""

    def __init__(self, session: Session) -> None:
        """Prepares the calls. `session`: stays in use for all other packets."""
        library: Any = pylibsrtp
        of_session: dict[str, Any] = vars(session)
        self._kept = session  # keeps the memory below alive, which the session frees
        self._context, self._data = of_session["_srtp"][0], of_session["_cdata"]
        self._buffer = of_session["_buffer"]
        self._capacity = len(self._data)
        self._size = library.ffi.new("int *")
        self._protect, self._unprotect = library.lib.srtp_protect, library.lib.srtp_unprotect

    def protect(self, packet: bytes) -> bytes:
        """Encrypts an RTP packet. Raises pylibsrtp.Error; ValueError for a packet that is too
        long."""
        return self._done(self._protect, packet, self._capacity - _TRAILER_BYTES)

    def unprotect(self, packet: bytes) -> bytes:
        """Decrypts an SRTP packet. Raises pylibsrtp.Error for a packet with a wrong key or a
        replayed one; ValueError for one that is too long."""
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
