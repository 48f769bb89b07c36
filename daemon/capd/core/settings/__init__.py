"""What can be set: layers of keys, and which of them a project may bring along."""
