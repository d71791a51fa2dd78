"""Audio files that promise more than they hold, as an attacker writes them."""

import struct
from collections.abc import Sequence


def monkeys_audio(final_frame_blocks: int) -> bytes:
    """Returns 108 bytes of Monkey's Audio whose only frame claims this number of samples."""
    descriptor = struct.pack("<4sHHIIIIIII16s", b"MAC ", 3990, 0, 52, 24, 4, 0, 24, 0, 0, bytes(16))
    header = struct.pack("<HHIIIHHI", 1000, 0, 0x7FFFFFF, final_frame_blocks, 1, 16, 2, 44_100)
    return (descriptor + header + struct.pack("<I", 80) + bytes(108))[:108]


def m4a(samples: int, *, tracks: int = 1, sample_bytes: int = 1) -> bytes:
    """Returns an M4A of less than 2 kB whose sample tables claim `samples` samples in each
    track."""
    tables = (
        _box(b"stts", struct.pack(">IIII", 0, 1, samples, 1024)),
        _box(b"stsc", struct.pack(">IIIII", 0, 1, 1, samples, 1)),
        _box(b"stsz", struct.pack(">III", 0, sample_bytes, samples)),
        _box(b"stco", struct.pack(">III", 0, 1, 40)),
    )
    return _movie([tables] * tracks, bytes(64))


def m4a_of_repeats(chunks: int, samples_per_chunk: int, codec: bytes = b"mp4a") -> bytes:
    """Returns an M4A whose chunks all lie at the same place, so four bytes of index add many
    packets. The packets are frames of silence to AMR."""
    samples = chunks * samples_per_chunk
    tables = (
        _box(b"stts", struct.pack(">IIII", 0, 1, samples, 1024)),
        _box(b"stsc", struct.pack(">IIIII", 0, 1, 1, samples_per_chunk, 1)),
        _box(b"stsz", struct.pack(">III", 0, 1, samples)),
        _box(b"stco", struct.pack(">II", 0, chunks) + struct.pack(">I", 40) * chunks),
    )
    return _movie([tables], b"\x7c" * samples_per_chunk, codec=codec)


def m4a_of_fragments(samples: int) -> bytes:
    """Returns an M4A whose fragment claims `samples` samples, which have no sizes of their own."""
    track = _box(b"tfhd", struct.pack(">II", 0x020000, 1))
    track += _box(b"trun", struct.pack(">II", 0, samples))
    empty = tuple(
        _box(kind, bytes(8)) if kind != b"stsz" else _box(kind, bytes(12))
        for kind in (b"stts", b"stsc", b"stsz", b"stco")
    )
    extends = _box(b"mvex", _box(b"trex", struct.pack(">IIIIII", 0, 1, 1, 1024, 1, 0)))
    head = _box(b"mfhd", struct.pack(">II", 0, 1))
    return _movie([empty], b"", extends) + _box(b"moof", head + _box(b"traf", track))


def caf_chunk(size_bytes: int) -> bytes:
    """Returns a CAF file with a chunk before its sound that claims this size."""
    description = struct.pack(">d4sIIIII", 16_000.0, b"lpcm", 0, 2, 1, 1, 16)
    return (
        struct.pack(">4sHH", b"caff", 1, 0)
        + struct.pack(">4sq", b"desc", len(description))
        + description
        + struct.pack(">4sq", b"free", size_bytes)
        + bytes(64)
    )


def _movie(
    tracks: Sequence[Sequence[bytes]], media: bytes, extends: bytes = b"", codec: bytes = b"mp4a"
) -> bytes:
    """Returns a file of tracks with these sample tables. The media lies at byte 40."""
    rate_hz, one = 44_100, 0x00010000
    matrix = struct.pack(">9I", one, 0, 0, 0, one, 0, 0, 0, 0x40000000)
    decoder_config = _descriptor(0x05, b"\x12\x08")  # AAC LC, 44 100 Hz, mono
    config = _descriptor(0x04, bytes([0x40, 0x15]) + bytes(11) + decoder_config)
    esds = _box(b"esds", bytes(4) + _descriptor(0x03, bytes(3) + config))
    sample = struct.pack(">6xH8xHH4xI", 1, 1, 16, rate_hz << 16)
    stsd = _box(
        b"stsd",
        struct.pack(">II", 0, 1) + _box(codec, sample + (esds if codec == b"mp4a" else b"")),
    )
    url = _box(b"url ", struct.pack(">I", 1))
    data = _box(b"dinf", _box(b"dref", struct.pack(">II", 0, 1) + url))
    movie = _box(
        b"mvhd",
        struct.pack(">IIIIIIH10x", 0, 0, 0, 1000, 1000, one, 0x100) + matrix + bytes(28),
    )
    for number, tables in enumerate(tracks, 1):
        stbl = _box(b"stbl", stsd + b"".join(tables))
        minf = _box(b"minf", _box(b"smhd", bytes(8)) + data + stbl)
        media_head = _box(b"mdhd", struct.pack(">IIIIIHH", 0, 0, 0, rate_hz, rate_hz, 0x55C4, 0))
        handler = _box(b"hdlr", struct.pack(">II4s12xx", 0, 0, b"soun"))
        track_head = struct.pack(">IIIIII8xHHHH", 7, 0, 0, number, 0, 1000, 0, 0, 0x100, 0)
        tkhd = _box(b"tkhd", track_head + matrix + bytes(8))
        movie += _box(b"trak", tkhd + _box(b"mdia", media_head + handler + minf))
    kind = _box(b"ftyp", b"M4A " + bytes(4) + b"M4A mp42isom")
    media = _box(b"mdat", media)
    return kind + media + _box(b"moov", movie + extends)


def _box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body) + 8, kind) + body


def _descriptor(tag: int, body: bytes) -> bytes:
    return bytes([tag, len(body)]) + body
