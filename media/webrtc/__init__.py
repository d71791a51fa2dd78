"""WebRTC: one peer connection, its tracks, its data channel and its statistics."""
