"""What is read of a compiled module: collectives of every kind, in every notation of HLO."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_module
from hypar_opt.execution.jax.collectives import Moved, collectives
from hypar_opt.execution.jax.run import load
from tests.execution.small_networks import chain

CASES = {
    "an all-to-all of two operands": (
        "%x = (f32[1,8]{1,0}, f32[1,8]{1,0}) all-to-all(%a, %b),"
        " replica_groups={{0,4},{1,5},{2,6},{3,7}}",
        [("all-to-all", 0, 8 * 16 * 4 // 2)],
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
    "a permutation that is started: operand, result and context": (
        "%x = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%a),"
        " source_target_pairs={{0,1}, {1,0}}",
        [("collective-permute", 2, 64)],
    ),
    "a reduce-scatter and an all-to-all that are started": (
        "%x = ((f32[8]{0}), f32[2]{0}) reduce-scatter-start(%a), replica_groups={{0,1},{2,3},"
        "{4,5},{6,7}}, dimensions={0}\n%y = f32[2]{0} reduce-scatter-update(%x)\n"
        "%z = f32[2]{0} reduce-scatter-done(%y)\n"
        "%w = ((f32[4]{0}, f32[4]{0}), (f32[4]{0}, f32[4]{0})) all-to-all-start(%a, %b),"
        " replica_groups={{0,1},{2,3},{4,5},{6,7}}",
        [("reduce-scatter", 2, 4 * 2 * 8), ("all-to-all", 2, 8 * 32 // 2)],
    ),
    "elements of one byte": (
        "%x = (pred[8]{0}, f8e4m3fn[8]{0}, s4[8]{0}) all-reduce(%a, %b, %c),"
        " replica_groups={{0,1},{2,3},{4,5},{6,7}}",
        [("all-reduce", 2, 4 * 2 * (8 + 8 + 4))],
    ),
    "groups of one device exchange nothing": (
        "%x = f32[8]{0} all-reduce(%a), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}",
        [],
    ),
    "what stands in a name": (
        "%w = f32[8]{0} parameter(0), metadata={op_name=\"w['= f32[8] all-gather(%a), x']\"}",
        [],
    ),
    "scalars alone": ("%x = f32[] all-reduce(%a), replica_groups={{0,1,2,3,4,5,6,7}}", []),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_collectives(case: str) -> None:
    text, moved = CASES[case]
    found = collectives(text, 3)
    assert list(found) == [Moved("gradient", kind, level, size) for kind, level, size in moved]


LEVELS = 3


def notations(along: tuple[int, ...]) -> Iterator[str]:
    """Yield the groups of devices along some of three levels, in every notation of HLO."""
    bits = sum(4 >> level for level in along)
    groups: dict[int, list[int]] = {}
    for device in range(8):
        groups.setdefault(device & ~bits, []).append(device)
    yield "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups.values()) + "}"
    others = [level for level in range(LEVELS) if level not in along]
    order = ",".join(map(str, [*others, *along]))
    yield f"[{8 >> len(along)},{1 << len(along)}]<=[2,2,2]T({order})"
    for axes in itertools.permutations(range(LEVELS)):
        # A mesh whose axes are the levels in another order, of devices in that order.
        mesh = ",".join(f"'a{n}'=2" for n in range(LEVELS))
        grouped = ",".join(f"'a{axes.index(level)}'" for level in along)
        transposed = ",".join(map(str, axes))
        digits = itertools.product(range(2), repeat=LEVELS)
        ids = (sum(n * (4 >> axis) for n, axis in zip(at, axes, strict=True)) for at in digits)
        yield f"mesh[{mesh}], device_ids=([2,2,2]T({transposed})) {{{grouped}}}"
        yield f"mesh[{mesh}], device_ids=({','.join(map(str, ids))}) {{{grouped}}}"
    yield "mesh['h1'=2,'h2'=2,'h3'=2] {" + ",".join(f"'h{level + 1}'" for level in along) + "}"
    yield "mesh[a=8] {" + ",".join(f"a:({1 << level})2" for level in along) + "}"
    high = [f"'a':({1 << level})2" for level in along if level < 2]
    yield "mesh['a'=4,'b'=2] {" + ",".join(high + ["'b'"] * (2 in along)) + "}"
    if len(along) == LEVELS:
        yield from ("{}", "[1,8]<=[8]", "mesh['a'=8] {'a'}", "mesh['a'=4,'b'=2] {'b','a'}")
    if along == (1, 2):
        yield from ("[2,4]<=[8]", "mesh['a'=8] {'a':(2)4}")
    if along == (0,):
        yield "[4,2]<=[2,4]T(1,0)"


@pytest.mark.parametrize(
    "along", [a for n in (1, 2, 3) for a in itertools.combinations(range(3), n)]
)
def test_groups_are_the_same_in_every_notation(along: tuple[int, ...]) -> None:
    """What jax 0.10 writes as lists and ranges, and jax 0.12 as axes of a mesh."""
    for kind, factor in (("all-gather", 1), ("all-reduce", 2), ("reduce-scatter", 1 << len(along))):
        # Halving and doubling: the deepest level carries the most.
        expected = [
            Moved("gradient", kind, level, (8 >> len(along)) * 32 * factor << above)
            for above, level in enumerate(along)
        ]
        for groups in notations(along):
            line = (
                f"ROOT %x = f32[8]{{0}} {kind}(%a), channel_id=1, replica_groups={groups}, x={{0}}"
            )
            assert list(collectives(line, LEVELS)) == expected, groups


@pytest.mark.parametrize(
    "line",
    [
        "%x = f32[8]{0} all-gather(%a), dimensions={0}",
        "%x = f32[8]{0} all-gather(%a), replica_groups=@mesh<a=2,b=4> {a}, dimensions={0}",
        "%x = f32[8]{0} all-gather(%a), replica_groups=mesh['a'=2,'b'=4] {'c'}, dimensions={0}",
        "%x = f32[8]{0} all-gather(%a), replica_groups=mesh['a'=3,'b'=2] {'a'}, dimensions={0}",
        "%x = f32[8]{0} all-gather(%a), replica_groups=[8]<=[8], dimensions={0}",
        "%x = f32[8]{0} all-gather(%a), replica_groups={{0,3},{1,2},{4,7},{5,6}}",
        "%x = f32[8]{0} all-gather(%a), replica_groups={{0,1},{2,3},{4,6},{5,7}}",
        "%x = f32[8]{0} all-gather(%a), replica_groups={{0,1},{2,3}}",
        "%x = f32[8]{0} all-gather(%a), replica_groups={{0,1},{0,1},{4,5},{6,7}}",
        "%x = f32[8]{0} collective-permute(%a), channel_id=1",
        "%x = f32[<=8]{0} all-gather(%a), replica_groups={}",
        "%x = odd[8]{0} all-gather(%a), replica_groups={}",
        "%x = f32[8]{0} ragged-all-to-all(%a, %b), replica_groups={}",
        "%x = f32[8]{0} collective-broadcast(%a), replica_groups={}",
        "%x = (f32[8]{0}, u32[], token[]) send(%a, %b), channel_id=1",
    ],
)
def test_what_is_not_understood_is_an_error_that_quotes_the_line(line: str) -> None:
    """Never a guess: a count of the wrong devices would call a right program wrong."""
    with pytest.raises(ValueError, match="HLO is not understood: ") as error:
        list(collectives(f"%a = f32[8] parameter(0)\n  {line}, metadata={{}}", LEVELS))
    assert str(error.value).endswith(line)
    assert "\n" not in str(error.value)


def test_a_step_that_cannot_be_counted_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``run --backend jax``, and of an exported module that is run."""

    def unreadable(text: str, levels: int) -> Iterator[Moved]:
        return collectives(f"{text}\n%x = f32[8] all-gather(%a), replica_groups=new", levels)

    plan = ho.solve(chain(), batch=8, levels=0, reading="executed")
    monkeypatch.setattr("hypar_opt.execution.jax.run.collectives", unreadable)
    with pytest.raises(
        ho.HyparError, match=r"^the bytes of jax .* cannot be counted: HLO is .*=new$"
    ):
        ho.run(plan, backend="jax")
    module = load(jax_module(plan))
    monkeypatch.setattr(module, "collectives", unreadable)
    with pytest.raises(SystemExit, match=r"^HLO is not understood: .*replica_groups=new$"):
        module.main()


def test_passes_are_told_by_where_an_operation_comes_from() -> None:
    line = '%x = f32[8] all-gather(%a), replica_groups={{0,1}}, metadata={op_name="jit(f)/NAME/x"}'
    for name, phase in (
        ("jvp()", "forward"),
        ("transpose(jvp())", "backward"),
        ("psum", "gradient"),
    ):
        assert [one.phase for one in collectives(line.replace("NAME", name), 1)] == [phase]
