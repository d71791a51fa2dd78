"""Announcements that the server makes by itself, and notifications by URL."""
