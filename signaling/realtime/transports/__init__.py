"""Transports of Realtime events: WebRTC, WebSocket, sideband connections."""
