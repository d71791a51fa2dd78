"""Boards with xiaozhi's stock firmware: check-in over HTTP, conversation over a WebSocket."""
