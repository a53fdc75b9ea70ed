"""The tables that a plan's optimality rests on, derived a second time, from the plan alone.

A certificate must not be checked against tables from the code that chose the plan: a single
mistake would then produce a wrong plan and prove it. So nothing here imports a cost model, a
search or the tensors that those share. The one exception is `hypar_opt.proofs.reference.own_cost`:
a plug-in's cost model is the definition of its charges.

Source: docs/decisions/0005-joint-optimum.md.
"""
