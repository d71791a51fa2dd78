"""Wire codecs of devices: no I/O, no clock."""
