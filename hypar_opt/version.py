"""The version, which plan files record."""

__version__ = "0.2.0"
