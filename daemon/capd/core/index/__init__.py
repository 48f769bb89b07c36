"""What is installed, in a few words: the cascade from one line for all to a call."""
