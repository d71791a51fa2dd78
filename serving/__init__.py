"""Models as a service: choosing, scheduling and supervising what engines compute."""
