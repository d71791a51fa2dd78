"""Home Assistant's voice protocol: hears, speaks and answers for whoever connects."""
