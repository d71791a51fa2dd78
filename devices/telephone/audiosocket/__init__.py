"""AudioSocket: the protocol with which Asterisk passes the sound of a call over TCP."""
