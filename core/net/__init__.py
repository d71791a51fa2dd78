"""TCP connections and addresses of peers."""
