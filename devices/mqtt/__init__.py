"""MQTT: shows devices and people to Home Assistant over a broker, and takes commands by topic."""
