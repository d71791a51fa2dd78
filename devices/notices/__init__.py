"""What the server says to devices by itself: announcements, and notifications by URL."""
