"""OpenAI's Realtime API over WebSocket and WebRTC. docs/realtime.md lists our additions."""
