"""Of the Python processes that Spark starts in tests: they take PySpark as it is installed.

Owns their path alone. Spark has its own zip file before it, without byte code, and each process would compile
that anew: two thirds of what its start costs.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
