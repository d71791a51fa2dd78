"""ICE (RFC 8445): settings, gathering, candidates, consent and restart."""
