"""What both backends need on disk and in memory: the store's own files, journals, reports and sequences."""
