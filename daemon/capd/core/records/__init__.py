"""What is kept of what happened, and for how long (70-operation, "Records")."""
