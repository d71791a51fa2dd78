"""WHIP (RFC 9725): publish sound over WebRTC, read what was said."""
