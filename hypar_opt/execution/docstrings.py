"""The docstring of an exported file."""


def docstring(words: str) -> str:
    """Return words as the literal that a file begins with: a name may hold quotes and backslashes.

    >>> docstring("A plan.").strip('"')
    'A plan.'
    """
    text = words.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{text}"""'
