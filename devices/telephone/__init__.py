"""Doors for telephone calls: AudioSocket of Asterisk, and Twilio Media Streams."""
