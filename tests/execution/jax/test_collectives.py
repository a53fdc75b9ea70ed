"""What is read of a compiled module: collectives of every kind, in every notation of HLO."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_module
from hypar_opt.execution.jax.collectives import Moved, collectives
from hypar_opt.execution.jax.run import load
from hypar_opt.hierarchy import Hierarchy
from tests.execution.small_networks import chain

HALVES = (2, 2, 2)

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
    found = list(collectives(text, HALVES))
    assert found == [Moved("gradient", kind, level, size) for kind, level, size in moved]


def notations(sizes: tuple[int, ...], along: tuple[int, ...]) -> Iterator[str]:
    """Yield the groups of devices along some of two or three levels, in every notation of HLO."""
    hierarchy, levels = Hierarchy(sizes), range(len(sizes))
    others = [level for level in levels if level not in along]
    groups: dict[int, list[int]] = {}
    for device in range(hierarchy.accelerators):
        groups.setdefault(hierarchy.within(device, others), []).append(device)
    yield "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups.values()) + "}"
    order, dims = ",".join(map(str, [*others, *along])), ",".join(map(str, sizes))
    yield f"[{hierarchy.parts(others)},{hierarchy.parts(along)}]<=[{dims}]T({order})"
    for axes in itertools.permutations(levels):
        # A mesh whose axes are the levels in another order, of devices in that order.
        mesh = ",".join(f"'a{n}'={sizes[axis]}" for n, axis in enumerate(axes))
        grouped = ",".join(f"'a{axes.index(level)}'" for level in along)
        transposed = ",".join(map(str, axes))
        digits = itertools.product(*(range(sizes[axis]) for axis in axes))
        ids = (
            sum(n * hierarchy.stride(axis) for n, axis in zip(at, axes, strict=True))
            for at in digits
        )
        yield f"mesh[{mesh}], device_ids=([{dims}]T({transposed})) {{{grouped}}}"
        yield f"mesh[{mesh}], device_ids=({','.join(map(str, ids))}) {{{grouped}}}"
    named = ",".join(f"'h{n + 1}'={size}" for n, size in enumerate(sizes))
    yield f"mesh[{named}] {{" + ",".join(f"'h{level + 1}'" for level in along) + "}"
    of_one = (f"a:({prod(sizes[:level])}){sizes[level]}" for level in along)
    yield f"mesh[a={hierarchy.accelerators}] {{" + ",".join(of_one) + "}"
    last = len(sizes) - 1
    high = [f"'a':({prod(sizes[:level])}){sizes[level]}" for level in along if level < last]
    halved = f"mesh['a'={prod(sizes[:last])},'b'={sizes[last]}]"
    yield f"{halved} {{" + ",".join(high + ["'b'"] * (last in along)) + "}"
    if len(along) == len(sizes):
        count = hierarchy.accelerators
        yield from ("{}", f"[1,{count}]<=[{count}]", f"mesh['a'={count}] {{'a'}}")
        yield f"{halved} {{'b','a'}}"
    if sizes == HALVES and along == (1, 2):
        yield from ("[2,4]<=[8]", "mesh['a'=8] {'a':(2)4}")
    if sizes == HALVES and along == (0,):
        yield "[4,2]<=[2,4]T(1,0)"


@pytest.mark.parametrize(
    ("sizes", "along"),
    [
        (sizes, along)
        for sizes in (HALVES, (2, 3, 4), (3, 2), (6, 3))
        for n in range(1, len(sizes) + 1)
        for along in itertools.combinations(range(len(sizes)), n)
    ],
)
def test_groups_are_the_same_in_every_notation(
    sizes: tuple[int, ...], along: tuple[int, ...]
) -> None:
    """What jax 0.10 writes as lists and ranges, and jax 0.12 as axes of a mesh."""
    hierarchy = Hierarchy(sizes)
    parts = hierarchy.parts(along)
    for kind, factor in (("all-gather", 1), ("all-reduce", 2), ("reduce-scatter", parts)):
        # Reduce-scatters up and all-gathers down: the deepest level carries the most.
        expected = [
            Moved("gradient", kind, level, hierarchy.accelerators // parts * 32 * factor * received)
            for above, level in enumerate(along)
            for received in [(sizes[level] - 1) * hierarchy.parts(along[:above])]
        ]
        for groups in notations(sizes, along):
            line = (
                f"ROOT %x = f32[8]{{0}} {kind}(%a), channel_id=1, replica_groups={groups}, x={{0}}"
            )
            assert list(collectives(line, sizes)) == expected, groups


@pytest.mark.parametrize(
    ("sizes", "levels"), [((3, 2), {0: 32 * 6 * 2 // 3, 1: 32 * 6 // 6}), ((6,), {0: 32 * 5})]
)
def test_an_all_to_all_keeps_its_own_part(sizes: tuple[int, ...], levels: dict[int, int]) -> None:
    """Of 6 devices' 32 bytes each a sixth; the rest crosses H1 first, if it crosses that."""
    line = "%x = f32[8]{0} all-to-all(%a), replica_groups={}, dimensions={0}"
    expected = [Moved("gradient", "all-to-all", level, size) for level, size in levels.items()]
    assert list(collectives(line, sizes)) == expected


def test_a_permutation_crosses_the_topmost_level_where_parts_differ() -> None:
    line = "%x = f32[8]{0} collective-permute(%a), source_target_pairs={{0,1},{2,1},{5,4},{4,0}}"
    assert {one.level: one.bytes for one in collectives(line, (3, 2))} == {0: 64, 1: 64}


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
        "%x = f32[8]{0} all-gather(%a), replica_groups={{0,1,2},{3,4,5},{6,7}}",
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
        list(collectives(f"%a = f32[8] parameter(0)\n  {line}, metadata={{}}", HALVES))
    assert str(error.value).endswith(line)
    assert "\n" not in str(error.value)


def test_a_step_that_cannot_be_counted_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``run --backend jax``, and of an exported module that is run."""

    def unreadable(text: str, levels: object) -> Iterator[Moved]:
        del levels
        return collectives(f"{text}\n%x = f32[8] all-gather(%a), replica_groups=new", ())

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
        assert [one.phase for one in collectives(line.replace("NAME", name), (2,))] == [phase]
