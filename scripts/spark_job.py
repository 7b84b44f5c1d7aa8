"""What spark-submit runs; its arguments are those of `logserver pipeline`. See package_spark.

Owns nothing but the way in; the master and the settings are spark-submit's.
"""

from logserver.commands.pipeline import command

if __name__ == "__main__":
    command(prog_name="spark_job.py")
