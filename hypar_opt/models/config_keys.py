"""The keys of a ``config.json``, checked where they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hypar_opt.documents.document import LARGEST_SIZE
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Item = TypeVar("Item", str, int)

_NO_STEP = frozenset(
    (
        # Of generation, of files, of other heads and of other code: no training step reads them.
        *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "use_cache"),
        *("transformers_version", "auto_map", "initializer_range", "task_specific_params"),
        *("n_ctx", "reorder_and_upcast_attn", "classifier_dropout", "pretraining_tp"),
        *("is_decoder", "attn_implementation", "_attn_implementation", "id2label", "label2id"),
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
        *("summary_first_dropout", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size"),
        *("original_max_position_embeddings", "cache_implementation"),
    )
)


class Config:
    """The keys of a configuration, checked when read; null counts as missing."""

    def __init__(self, keys: Mapping[str, Any], where: str = "") -> None:
        self._keys = {key: value for key, value in keys.items() if value is not None}
        self._where = where
        self._read: set[str] = set()

    def size(self, *keys: str, default: int | None = None) -> int:
        """Return a positive whole number: the value of the first of the keys that exists."""
        return int(
            self._value(
                keys,
                default,
                lambda value: type(value) is int and 1 <= value <= LARGEST_SIZE,
                f"a whole number from 1 to {LARGEST_SIZE:,}",
            )
        )

    def number(self, *keys: str, default: float | None = None) -> float:
        """Return a number of 0 or more."""
        return float(
            self._value(
                keys,
                default,
                lambda value: type(value) in (int, float) and 0 <= value < float("inf"),
                "a number of 0 or more",
            )
        )

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Return true or false."""
        return bool(self._value(keys, default, lambda value: type(value) is bool, "true or false"))

    def word(self, *keys: str, default: str | None = None) -> str:
        """Return a text."""
        return str(self._value(keys, default, lambda value: type(value) is str, "a text"))

    def words(self, key: str) -> list[str]:
        """Return a list of texts; an empty one where there is none."""
        return self._list(key, str, "a list of texts")

    def numbers(self, key: str) -> list[int]:
        """Return a list of whole numbers; an empty one where there is none."""
        return self._list(key, int, "a list of whole numbers")

    def _list(self, key: str, kind: type[Item], description: str) -> list[Item]:
        value: list[Item] = self._value(
            (key,),
            [],
            lambda value: type(value) is list and all(type(item) is kind for item in value),
            description,
        )
        return value

    def table(self, *keys: str) -> Config:
        """Return a table of keys; an empty one where there is none."""
        value = self._value(keys, {}, lambda value: type(value) is dict, "a table")
        key = next((key for key in keys if key in self._keys), keys[0])
        return Config(value, f"{self._where}{key}, ")

    def has(self, key: str) -> bool:
        """Return whether there is a key."""
        self._read.add(key)
        return key in self._keys

    def unread(self) -> list[str]:
        """Return the keys that were not read, in order."""
        return [key for key in self._keys if key not in self._read | _NO_STEP]

    def refuse(self, key: str, problem: str) -> InputError:
        """Return the error to raise for one of its keys."""
        return InputError(problem, where=f"{self._where}{key}")

    def _value(
        self, keys: tuple[str, ...], default: Any, fits: Callable[[Any], bool], description: str
    ) -> Any:
        self._read.update(keys)
        for key in keys:
            if key in self._keys:
                if not fits(self._keys[key]):
                    raise self.refuse(key, f"should be {description}, got {shown(self._keys[key])}")
                return self._keys[key]
        if default is None:
            raise InputError(f"{self._where}missing key {keys[0]!r}")
        return default
