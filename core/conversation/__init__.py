"""Values of a conversation as clients see them: events, items, identifiers, people, tokens."""
