"""What an exported module does when it is run."""
# ruff: noqa
# mypy: ignore-errors
# ---
def random_data(on: Mesh, seed: int = 0) -> list[Arrays]:
    """Return random weights, inputs and targets, each device its own shards of them."""

    def values(key: jax.Array) -> list[Arrays]:
        drawn: list[Arrays] = []
        for table in (WEIGHTS, INPUTS_GIVEN, TARGETS):
            arrays = {}
            for name, (shape, _, *_, last) in table.items():
                key, own = jax.random.split(key)
                if table is not WEIGHTS and last is not None:
                    arrays[name] = jax.random.randint(own, shape, 0, last)
                    continue
                arrays[name] = jax.random.normal(own, shape)
                if table is WEIGHTS:
                    arrays[name] = arrays[name] / last**0.5 if last else 1 + arrays[name] / 10
            drawn.append(arrays)
        return drawn

    sharded = [shardings(table, on) for table in (WEIGHTS, INPUTS_GIVEN, TARGETS)]
    return jax.jit(values, out_shardings=sharded)(jax.random.key(seed))


def main() -> None:
    """Run a step on random data; print the loss, and the bytes of the compiled collectives."""
    on = mesh()
    data = random_data(on)
    step = on_devices(update, on).lower(*data).compile()
    moved: Counter[tuple[str, int]] = Counter()
    for one in collectives(step.as_text(), len(LEVELS)):
        moved[one.kind, one.level] += one.bytes
    value, _ = step(*data)
    print(f"loss {float(value):.6g} on {DEVICES} devices")
    for (kind, level), size in sorted(moved.items()):
        print(f"H{level + 1}  {kind:18} {size:>18,} bytes")
    print(f"all {'':18} {sum(moved.values()):>18,} bytes")


if __name__ == "__main__":
    main()
