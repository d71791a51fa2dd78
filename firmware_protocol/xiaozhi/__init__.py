"""Codec of xiaozhi's WebSocket protocol of firmware 2.4: bytes and texts to values and back."""
