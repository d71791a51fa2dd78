"""The door for ESPHome voice satellites."""
