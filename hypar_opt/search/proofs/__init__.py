"""The tables that a plan's optimality rests on, derived a second time, from the plan alone.

What a certificate is checked against must not come from the code that found the plan: one
mistake would then make a wrong plan and prove it. So nothing here imports a cost model, a
search or the tensors that those share; `hypar_opt.search.proofs.own_cost` alone asks a cost by
entry point for its charges, since those define it.

Source: docs/decisions/0005-joint-optimum.md.
"""
