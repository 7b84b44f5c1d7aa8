"""A folder for the path of Spark's Python processes, not a package to import: see `sitecustomize` in it."""
