"""Sweeps: many cases simulated on all cores or a cluster, resumed after interruptions."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypar_opt.checked import checked
from hypar_opt.documents.files import check_outputs, recorded_reads
from hypar_opt.errors import HyparError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.array import Array
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.plan.settings import keys_of_columns
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.sweep.case import Case, Cell, SweepRow, cells_of, network_of, place_of
from hypar_opt.studies.sweep.journal import Journal
from hypar_opt.studies.sweep.run import is_solved_together, run_local, run_on_cluster, run_together
from hypar_opt.studies.sweep.spec import read_spec
from hypar_opt.studies.sweep.table import check_table, write_table
from hypar_opt.workload.network import Network


@dataclass(frozen=True, repr=False)
class SweepResult(Documented, Results[SweepRow]):
    """A finished table, one `SweepRow` per case, and the number of rows the journal had before."""

    contents = Columns(
        "output",
        Column("before", of="done_before"),
        *("refused", "moving_more"),
        Column("rows", type=list[Mapping[str, Cell]]),
    )

    done_before: int
    output: str = ""
    """The file of the table."""
    keys: Mapping[str, str] = field(default_factory=FrozenDict)
    """The keys of a network's or an array's file by their columns, of what the sweep varies."""

    def __repr__(self) -> str:
        refused = f", {self.refused:,} refused" if self.refused else ""
        return f"<SweepResult: {len(self):,} cases{refused}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return the table's rows, with a column for each key that the sweep varies."""
        return cells_of(self.entries)

    @property
    def refused(self) -> int:
        """The number of rows whose case was refused, with a reason."""
        return sum(row.status == "refused" for row in self)

    @property
    def moving_more(self) -> int:
        """The number of rows whose plan moves more than Data Parallelism when it is run.

        A plan for least time or energy as it is run may do so for good reason.
        """
        return sum(
            row.executed_bytes > row.data_parallel_bytes
            for row in self
            if row.executed_bytes is not None and row.data_parallel_bytes is not None
            if row.cost == "bytes" or row.reading not in RUN_READINGS
        )


@checked
def sweep(
    spec: str | Path,
    output: str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = silent,
) -> SweepResult:
    """Run each case of a sweep file that no earlier call has finished, and write one table.

    A case is solved, and its step simulated unless the file says ``simulate = false``; in bytes
    chains are then solved together, as by `hypar_opt.solve_many`. Each row is written to a journal
    beside the table, `journal_of`, as soon as it is finished. After an interruption the same call
    runs the remaining cases. The journal stays, and a sweep that is changed later reuses the rows
    of the cases that both have.

    Parameters
    ----------
    output
        ``.csv``, or ``.parquet`` if pyarrow is installed; written at the end, as a whole.
    workers
        Processes on this machine; by default one per available core.
    scheduler
        The address, ``tcp://HOST:PORT``, of a Dask scheduler whose workers run the cases.

    Raises
    ------
    HyparError
        If the sweep or the call is wrong, or a cluster is lost; finished rows are kept.
    """
    if scheduler is not None and workers is not None:
        raise HyparError(
            f"{argument('workers')} is for this machine, and {argument('scheduler')} has workers"
            " of its own"
        )
    if workers is not None and workers < 1:
        raise HyparError(f"{argument('workers')} should be 1 or more, got {workers}")
    # The output must not overwrite the sweep file or a network of it.
    with recorded_reads() as read:
        cases = {case.key(): case for case in read_spec(spec)}
    check_outputs(read, output, journal_of(output))
    check_table(output)
    # Locked until the table is written: two calls cannot run the same cases.
    with Journal(journal_of(output)) as journal:
        todo = {key: case for key, case in cases.items() if key not in journal.rows}
        done_before = len(cases) - len(todo)
        progress(done_before, len(cases))
        try:
            # Closed also on errors and Ctrl-C, so that no worker outlives the call.
            with closing(_run(todo, workers, scheduler)) as finished:
                for done, (key, row) in enumerate(finished, done_before + 1):
                    journal.add(key, row)
                    progress(done, len(cases))
        except KeyboardInterrupt:  # it may have arrived right after a row was written
            progress(sum(key in journal.rows for key in cases), len(cases))
            raise
        # In the order of the sweep file; the journal's order is that in which cases ended.
        rows = tuple(journal.rows[key] for key in cases)
        write_table(rows, output)
    return SweepResult(rows, done_before, str(output), _keys(next(iter(cases.values()))))


def _keys(case: Case) -> FrozenDict[str, str]:
    """Return the keys that a sweep varies, by their columns."""
    place = place_of(case.array)
    described: list[Network | Array] = [network_of(case.network)]
    described += [place] if isinstance(place, Array) else []
    keys = {column: key for part in described for column, key in keys_of_columns(part).items()}
    return FrozenDict((column, keys[column]) for column, _ in case.varied)


def journal_of(output: str | Path) -> Path:
    """Return the path of the journal that keeps a table's rows."""
    return Path(f"{output}.journal")


def _run(
    cases: dict[str, Case], workers: int | None, scheduler: str | None
) -> Generator[tuple[str, SweepRow], None, None]:
    together = {key: case for key, case in cases.items() if is_solved_together(case)}
    rest = {key: case for key, case in cases.items() if key not in together}
    yield from (run_local(rest, workers) if scheduler is None else run_on_cluster(rest, scheduler))
    yield from run_together(together)
