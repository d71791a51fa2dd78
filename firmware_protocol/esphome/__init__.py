"""The voice protocol of ESPHome devices, without I/O."""
