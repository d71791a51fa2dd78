"""One file per change. A released file is never edited."""
