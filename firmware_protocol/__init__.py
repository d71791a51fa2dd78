"""Wire codecs of devices: no I/O, no clock. None is here yet."""
