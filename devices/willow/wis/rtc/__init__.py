"""WIS's WebRTC calls and their messages."""
