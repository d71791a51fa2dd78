"""How Whisper's token tables write bytes."""


def byte_letters() -> list[str]:
    """GPT-2's printable letter for each byte."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
