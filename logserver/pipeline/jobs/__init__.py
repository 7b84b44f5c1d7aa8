"""The jobs of the pipeline, one module each: `run(spark, ...)` does the work and gives a DataFrame of what it did.

Owns what the jobs share. Must not import a job by itself, print, or know the command line, which is
`logserver.commands.pipeline`.
"""
