"""Code that several voices share: times of words, a thread that can be stopped, texts."""
