"""Calls libopus directly, for `media/codecs/opus.py`. Going through FFmpeg would double the cost.

The library is the one that came with PyAV, whose FFmpeg links to it, so it is loaded anyway. A PyAV
that was built on the machine links to the system's library. Its interface has been the same since
2012. The states of decoders and encoders are in our own memory, so no call is needed to free them.
"""

import ctypes
from ctypes import POINTER, Array, c_char, c_char_p, c_int, c_int32, c_void_p
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import av
import numpy as np

from core.audio import Pcm
from core.errors import EarshotError

RATE_HZ = 48_000
"Rate to which every packet can be decoded, and in which RTP counts."

MAX_SAMPLES = RATE_HZ * 120 // 1000
"Samples of the longest packet, 120 ms (RFC 6716 section 2.1.4)."

APPLICATIONS = {"voip": 2048, "audio": 2049, "lowdelay": 2051}
"Codes of libopus's applications (modes of the encoder)."

_SET_BITRATE, _SET_COMPLEXITY = 4002, 4010
_MAX_PACKET_BYTES = 4000
"Size of the buffer for a packet, as libopus's manual recommends."


class OpusError(EarshotError):
    """Error that libopus reported; the text is its own."""

    code = "opus_error"


class LibopusDecoder:
    """Decodes packets to mono s16 at `rate_hz`: 8, 12, 16, 24 or 48 kHz."""

    def __init__(self, rate_hz: int) -> None:
        lib = library()
        self._state = _memory(lib.opus_decoder_get_size(1))
        _checked(lib.opus_decoder_init(self._state, rate_hz, 1))
        self._decode = lib.opus_decode
        self._pcm = np.zeros(MAX_SAMPLES * rate_hz // RATE_HZ, np.int16)
        self._address, self._capacity = self._pcm.ctypes.data, len(self._pcm)

    def decode(self, packet: bytes) -> Pcm:
        """Decodes one packet. Raises OpusError, after which further packets can be decoded."""
        samples = self._decode(self._state, packet, len(packet), self._address, self._capacity, 0)
        return self._pcm[: samples if samples >= 0 else _checked(samples)].copy()

    def conceal(self, samples: int) -> Pcm:
        """Returns a guess at lost audio. `samples`: a multiple of 2.5 ms, at most 120 ms."""
        samples = _checked(self._decode(self._state, None, 0, self._address, samples, 0))
        return self._pcm[:samples].copy()


class LibopusEncoder:
    """Encodes mono s16 at `rate_hz`, as for `LibopusDecoder`, with a variable bit rate."""

    def __init__(self, rate_hz: int, application: str, bitrate_bps: int, complexity: int) -> None:
        lib = library()
        self._state = _memory(lib.opus_encoder_get_size(1))
        _checked(lib.opus_encoder_init(self._state, rate_hz, 1, APPLICATIONS[application]))
        _checked(lib.opus_encoder_ctl(self._state, _SET_BITRATE, c_int32(bitrate_bps)))
        _checked(lib.opus_encoder_ctl(self._state, _SET_COMPLEXITY, c_int32(complexity)))
        self._encode = lib.opus_encode
        self._pcm = np.zeros(MAX_SAMPLES * rate_hz // RATE_HZ, np.int16)
        self._address = self._pcm.ctypes.data
        "Address of `_pcm`. It is read once: asking numpy takes longer than copying a frame."
        self._packet = _memory(_MAX_PACKET_BYTES)
        self._view = memoryview(self._packet).cast("B")

    def encode(self, pcm: Pcm) -> bytes:
        """Encodes 2.5 to 120 ms to one packet. Raises OpusError."""
        self._pcm[: len(pcm)] = pcm
        size = _checked(
            self._encode(self._state, self._address, len(pcm), self._packet, _MAX_PACKET_BYTES)
        )
        return bytes(self._view[:size])


@cache
def library() -> ctypes.PyDLL:
    """Loads libopus. Raises EarshotError if there is none."""
    folder = Path(av.__file__).parent
    bundled = [*folder.parent.glob("av.libs/libopus[-.]*"), *folder.glob(".dylibs/libopus.*")]
    name = str(bundled[0]) if bundled else find_library("opus")
    if name is None:
        raise EarshotError(
            "libopus is missing: PyAV's wheels contain it; otherwise install the package libopus0"
        )
    # PyDLL keeps the interpreter lock during a call. While another thread is busy, getting the lock
    # back would take longer than a packet does (30 us to encode or to decode).
    lib = ctypes.PyDLL(name)
    lib.opus_strerror.restype = c_char_p
    lib.opus_decoder_init.argtypes = (c_void_p, c_int32, c_int)
    lib.opus_encoder_init.argtypes = (c_void_p, c_int32, c_int, c_int)
    lib.opus_decode.argtypes = (c_void_p, c_char_p, c_int32, c_void_p, c_int, c_int)
    # The arguments after these two are variadic and must not be declared: on Apple's ARM they are
    # passed in another way.
    lib.opus_encoder_ctl.argtypes = (c_void_p, c_int)
    lib.opus_encode.argtypes = (c_void_p, c_void_p, c_int, POINTER(c_char), c_int32)
    return lib


def _memory(size_bytes: int) -> Array[c_char]:
    return (c_char * size_bytes)()


def _checked(result: int) -> int:
    """Returns the result of a call, which is a count. Raises OpusError if it is negative."""
    if result < 0:
        raise OpusError(library().opus_strerror(result).decode())
    return result
