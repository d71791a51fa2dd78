"""Transports of Realtime events: WebRTC, WebSocket and sideband connections."""
