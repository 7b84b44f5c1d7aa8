"""Access to the server: tokens, users, and what they may do."""
