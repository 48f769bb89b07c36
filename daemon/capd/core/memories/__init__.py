"""What is known beside the tools: memories, and which of them a model is told when."""
