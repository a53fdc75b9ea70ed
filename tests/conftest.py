import gc
import os
import signal
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers
from packaging.version import Version

from hypar_opt.garbage import COLLECT_AFTER
from tests import slow
from tests.cli.shell import Shell

# Thousands of collected tests live to the end: without them each collection of garbage is shorter.
gc.disable()


# XLA's machine code need not be fast, here or in processes that tests start: the passes that decide
# on collectives come before.
XLA_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# They leave a third of the time of compiling. Newer versions abort: flags that they do not know.
if find_spec("jaxlib") and Version(version("jaxlib")) < Version("0.11"):
    XLA_FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = XLA_FLAGS


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)  # as a command does


def pytest_configure(config: pytest.Config) -> None:
    """Before tests are made, which draw as many examples and cases as are to run."""
    slow.ALL = "slow" in config.option.markexpr.replace("not slow", "")
    # Time is measured in benchmarks/, never in a test; a fixed seed makes a red run repeat.
    settings.register_profile("hypar", slow.examples(60), deadline=None, derandomize=True)
    # A mutant is to be noticed; the smallest example of that would take minutes to find.
    settings.register_profile(
        "mutants", settings.get_profile("hypar"), phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("hypar")
    # Nor does what is drawn depend on which modules a worker has imported, for their constants.
    vars(providers)["_get_local_constants"] = lambda: providers._local_constants


# A script's background job ignores Ctrl-C, and all that it starts would; those that a test sends
# are to be noticed.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    # Of the shell that runs the tests: output is as wide as in a pipe.
    monkeypatch.delenv("COLUMNS", raising=False)
    return Shell()
