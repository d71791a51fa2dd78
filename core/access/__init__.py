"""Named keys with their scopes, and limits of requests and sessions."""
