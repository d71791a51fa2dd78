"""Services that all doors of devices share: directory, arbitration, pairing, presence, updates."""
