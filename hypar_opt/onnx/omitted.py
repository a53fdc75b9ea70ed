"""Parts of a model that its network omits: phrases, each with its nodes."""

from __future__ import annotations

from hypar_opt.onnx.model import OnnxNode


class Omitted:
    """Phrases in the order in which they were first added, each with its nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}

    def add(self, phrase: str, node: OnnxNode | None = None) -> None:
        """Add a phrase such as ``rotary positions``, and the node that it is about."""
        nodes = self._nodes.setdefault(phrase, {})
        if node is not None:
            nodes[f"node {node.label!r} ({node.op})"] = None

    def phrases(self) -> list[str]:
        """Return each phrase with its first node and the number of others."""
        out = []
        for phrase, nodes in self._nodes.items():
            first = next(iter(nodes), "")
            more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
            text = f"{phrase} ({first}{more})" if first else phrase
            # Names of nodes may be any text; a network file holds only printable characters.
            out.append("".join(c if c.isprintable() else "?" for c in text)[:MAX_LETTERS])
        return out


MAX_LETTERS = 400
