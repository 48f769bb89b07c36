"""What a project's files would start, and what of it somebody has agreed to."""
