"""OpenAI Realtime over WebSocket and WebRTC; docs/realtime.md says what is ours."""
