"""The program that spark-submit runs; it takes the arguments of `logserver pipeline`. See package_spark.

Owns only the entry point; must not set the master or Spark's settings: spark-submit does.
"""

from logserver.cli.spark import command

if __name__ == "__main__":
    command(prog_name="spark_job.py")
