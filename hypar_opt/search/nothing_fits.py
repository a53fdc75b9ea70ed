"""Where no plan is found that fits the memory of a device: what is said, and what is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import NoAnswerError

if TYPE_CHECKING:
    from hypar_opt.search.way_of_training import Counted


class NothingFitsError(NoAnswerError):
    """No plan was found that fits the memory of a device.

    Parameters
    ----------
    counted
        The plan that lacks least of those found.
    proved
        Whether it is proved that none fits: of all micro-batches, ways to train and layouts that
        the problem leaves open.
    at_any_share
        Whether the proof holds for all shares of groups of accelerators, too.
    """

    def __init__(
        self,
        counted: Counted,
        *,
        proved: bool = False,
        at_any_share: bool = False,
        stopped_by: str = "limits",
    ) -> None:
        super().__init__("no plan was found that fits the memory of a device", stopped_by)
        self.counted, self.proved, self.at_any_share = counted, proved, at_any_share
