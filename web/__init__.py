"""The page and the plain HTTP doors."""
