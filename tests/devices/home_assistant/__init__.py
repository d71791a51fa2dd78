"""Home Assistant as the house."""
