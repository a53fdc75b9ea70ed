"""The version, which plan files record."""

__version__ = "0.3.0"
