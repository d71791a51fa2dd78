"""One file per change. A released one is never edited."""
