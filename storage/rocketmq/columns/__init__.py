"""Records as columns, in splits that tasks read side by side, for Spark."""
