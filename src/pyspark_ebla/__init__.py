"""Where Spark finds `format("ebla")`.

It imports every top-level package named `pyspark_*` that its Python can see, and takes the class `DefaultSource`.
"""

from ebla.source.data_source import EblaDataSource as DefaultSource

__all__ = ["DefaultSource"]
