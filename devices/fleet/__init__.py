"""What all doors of devices share: directory, arbitration, pairing, presence, updates."""
