"""Sets of choices that tests search, or draw plans of."""

from hypar_opt.workload.parallelism import CHOICES

WITH_TOKENS = (*CHOICES, "tokens")
"""Any plan of them runs, if its axes are long enough: rows and columns need equal parts."""

WITH_EXPERTS = (*WITH_TOKENS, "experts")
"""As these, of tokens that are dispatched to experts, too."""

WITH_ADDENDS = (*WITH_TOKENS, "addends")
"""As these, of sums that take addends, too."""

WITH_QUERIES = (*WITH_TOKENS, "queries")
"""As these, of the queries of key-value heads, too."""
