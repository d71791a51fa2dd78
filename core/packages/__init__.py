"""Plugins of other installed packages, and private names of libraries that this project uses."""
