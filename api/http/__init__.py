"""What HTTP requests have in common: parameters, content types, errors, caching, access."""
