"""Speech synthesis of text: clauses, normalization, voices, cache."""
