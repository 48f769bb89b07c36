"""`capd acp`: sits between an editor that speaks the Agent Client Protocol and its agent."""
