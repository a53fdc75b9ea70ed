"""Strict TOML and JSON documents: parsed, validated, read, and written whole or not at all."""
