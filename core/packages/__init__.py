"""What other installed packages add, and which private names of libraries this project uses."""
