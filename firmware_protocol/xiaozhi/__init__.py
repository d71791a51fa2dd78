"""xiaozhi's WebSocket protocol, as firmware 2.4 speaks it: bytes and texts to values and back."""
