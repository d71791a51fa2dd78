"""From RTP packets to frames of audio, and back."""
