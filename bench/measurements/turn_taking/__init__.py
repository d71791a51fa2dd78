"""Turn taking as a curve: turns that are cut off at a pause, against the time until a turn ends."""
