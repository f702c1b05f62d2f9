"""The version, and the version of the run folder's layout."""

__version__ = "0.3.0"
FORMAT = 4  # raised whenever an older Seqloom could not read a run folder
IMPORTED = "imported"  # in config.yaml, in place of a preset's size: a model that another library made
