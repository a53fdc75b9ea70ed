"""A sweep on sixteen Dask workers: the part of their time in which they run cases.

The workers are simulated: threads of one process, whose cases sleep as long as a simulated step of
a small network takes to compute. So the machine's cores are left to the scheduler, the client and
the workers' own administration, which is what limits a cluster.

* 4,000 cases of 20 ms on 16 workers: in at most 1.25 times as long as 250 cases of one worker take,
  an efficiency of at least 0.8.
* 160 cases of 200 ms, which are longer than a chunk allows for: the same.

Exit status 1 on a miss.
"""

from __future__ import annotations

import logging
import sys
import time
from unittest.mock import patch

from benchmarks.measure import judged, needs, size

needs("distributed")

from distributed import LocalCluster  # noqa: E402

from hypar_opt.studies.sweep import run  # noqa: E402
from hypar_opt.studies.sweep.case import Case  # noqa: E402

WORKERS = size(16, 2)
EFFICIENCY = 0.8
LOADS = size(((4000, 0.02), (160, 0.2)), ((8, 0.001), (4, 0.002)))
"""Numbers of cases, and the seconds that each takes."""

CASE = Case("{}", "[2]", 256, 4, "data,model", "bytes", "dp", None, None, "text", ("", ""))


def efficiency(scheduler: str, cases: int, seconds: float) -> float:
    """Return the seconds of all cases over those that the workers had."""
    named = {str(number): CASE for number in range(cases)}

    def sleep(case: Case) -> Case:
        time.sleep(seconds)
        return case

    with patch.object(run, "run_case", sleep):
        started = time.perf_counter()
        rows = dict(run.run_on_cluster(named, scheduler))
        taken = time.perf_counter() - started
    assert rows.keys() == named.keys()
    return cases * seconds / (WORKERS * taken)


def main() -> None:
    logging.getLogger("distributed").setLevel(logging.ERROR)
    missed = False
    with LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        for cases, seconds in LOADS:
            share = efficiency(cluster.scheduler_address, cases, seconds)
            name = f"{cases:,} cases of {seconds * 1e3:.0f} ms on {WORKERS} workers, efficiency"
            missed |= judged(name, share, EFFICIENCY, at_least=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
