"""The index: what is installed, in few words, and how to switch it on."""
