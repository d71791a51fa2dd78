"""The door for Twilio Media Streams: a telephone number of Twilio, over HTTPS and WebSocket."""
