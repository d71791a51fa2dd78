"""Who may do what and how often: named keys, and limits of requests and sessions."""
