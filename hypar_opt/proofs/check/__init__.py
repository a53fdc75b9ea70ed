"""The tables that a plan's optimality rests on, derived a second time, from the plan alone.

A certificate must not be checked against tables from the code that chose the plan: a single
mistake would then produce a wrong plan and prove it. So nothing here imports a cost model, a
search or the tensors that those share. The one exception is `hypar_opt.proofs.check.plugin_cost`:
a plug-in's cost model is the definition of its charges.

What a step does is derived as operations of a node in a state, and of a boundary between two
(`hypar_opt.proofs.check.operations`); charges are folds of these, and loads of what a node holds.

Source: docs/decisions/0005-joint-optimum.md.
"""
