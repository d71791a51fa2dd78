"""HTTP helpers for all doors: routes, streamed responses, and which URLs may be fetched."""
