"""What of a model its network does not keep: phrases, each with the nodes that it is about."""

from __future__ import annotations

from hypar_opt.onnx.model import OnnxNode


class Omitted:
    """Phrases in the order in which they were first said, each with the nodes it is about."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}

    def add(self, phrase: str, node: OnnxNode | None = None) -> None:
        """Keep a phrase such as ``rotary positions``, and the node where it is found."""
        nodes = self._nodes.setdefault(phrase, {})
        if node is not None:
            nodes[f"node {node.label!r} ({node.op})"] = None

    def phrases(self) -> list[str]:
        """Return each phrase with the first of its nodes, and how many more there are."""
        out = []
        for phrase, nodes in self._nodes.items():
            first = next(iter(nodes), "")
            more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
            text = f"{phrase} ({first}{more})" if first else phrase
            # Names of nodes are any text, and a network file holds printable letters alone.
            out.append("".join(c if c.isprintable() else "?" for c in text)[:MAX_LETTERS])
        return out


MAX_LETTERS = 400
