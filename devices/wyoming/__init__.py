"""Wyoming, Home Assistant's voice protocol: recognition, speech and answers for its clients."""
