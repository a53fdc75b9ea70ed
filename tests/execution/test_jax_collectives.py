"""What is read of a compiled module: collectives of every kind, in every notation of HLO."""

from __future__ import annotations

import pytest

from hypar_opt.execution.jax.collectives import Moved, collectives

CASES = {
    "pairs at the deepest of three levels": (
        "%x = f32[4,8]{1,0} all-gather(%a), replica_groups={{0,1},{2,3},{4,5},{6,7}}",
        [("all-gather", 2, 4 * 4 * 8 * 4)],
    ),
    "a range instead of lists, transposed": (
        "%x = f32[4,8]{1,0} all-gather(%a), replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}",
        [("all-gather", 0, 4 * 4 * 8 * 4)],
    ),
    "a reduce-scatter is written with its shard": (
        "ROOT %x = f32[2]{0} reduce-scatter(%a), replica_groups={{0,2},{1,3},{4,6},{5,7}}",
        [("reduce-scatter", 1, 4 * 4 * 4)],
    ),
    "an all-to-all of two operands": (
        "%x = (f32[1,8]{1,0}, f32[1,8]{1,0}) all-to-all(%a, %b),"
        " replica_groups={{0,4},{1,5},{2,6},{3,7}}",
        [("all-to-all", 0, 8 * 16 * 4 // 2)],
    ),
    "an all-reduce over two levels: halving and doubling, less at the topmost": (
        "%x = bf16[10]{0} all-reduce(%a), replica_groups={{0,1,4,5},{2,3,6,7}}, to_apply=%add",
        [("all-reduce", 0, 2 * 2 * 20), ("all-reduce", 2, 2 * 2 * 20 * 2)],
    ),
    "a tuple with a scalar, which is left out, and positions as comments": (
        "%x = (f32[], f32[3]{0}, /*index=2*/f32[2,2]{1,0}) all-reduce(%a, %b, %c),"
        " replica_groups={{0,1},{2,3},{4,5},{6,7}}",
        [("all-reduce", 2, 4 * 2 * (12 + 16))],
    ),
    "asynchronous: operands stand before results": (
        "%x = (f32[4]{0}, f32[8]{0}) all-gather-start(%a),"
        " replica_groups={{0,4},{1,5},{2,6},{3,7}}",
        [("all-gather", 0, 4 * 32)],
    ),
    "its end moves nothing more": ("%y = f32[8]{0} all-gather-done(%x)", []),
    "a permutation, pair by pair": (
        "%x = f32[8]{0} collective-permute(%a), source_target_pairs={{0,1},{1,0},{4,4},{2,6}}",
        [("collective-permute", 2, 64), ("collective-permute", 0, 32)],
    ),
    "scalars alone": ("%x = f32[] all-reduce(%a), replica_groups={{0,1,2,3,4,5,6,7}}", []),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_collectives(case: str) -> None:
    text, moved = CASES[case]
    found = collectives(text, 3)
    assert list(found) == [Moved("gradient", kind, level, size) for kind, level, size in moved]


def test_passes_are_told_by_where_an_operation_comes_from() -> None:
    line = '%x = f32[8] all-gather(%a), replica_groups={{0,1}}, metadata={op_name="jit(f)/NAME/x"}'
    for name, phase in (
        ("jvp()", "forward"),
        ("transpose(jvp())", "backward"),
        ("psum", "gradient"),
    ):
        assert [one.phase for one in collectives(line.replace("NAME", name), 1)] == [phase]
