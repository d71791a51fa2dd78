"""WHIP (RFC 9725): clients publish audio over WebRTC and read its transcript."""
