"""Training steps of GPTs on one GPU, as rows for ``hypar-opt validate`` and ``calibrate``.

    python torch_steps.py --machine mosaic-h100 > steps.toml

Needs PyTorch alone. The GPT is that of ``gpt:layers=...,hidden=...,heads=...``: elements of 16
bits, gradients and Adam's state in single precision (18 bytes a weight), attention in one kernel,
gradients added up over micro-batches. With ``--compile`` each block is compiled, as in a run that
is meant to be fast; without, kernels are launched one by one from Python.

A row's seconds are the median of the timed steps, its memory the most that PyTorch's tensors took,
which leaves out CUDA's context and fragments.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
except ModuleNotFoundError:
    sys.exit("this benchmark needs torch, which is not installed")

VOCABULARY = 50304
MICRO_BATCHES = 4
STEPS = 5
WARM_UP = 2

COLUMNS = [
    *("id", "machine", "gpus", "layers", "hidden", "heads", "seq", "vocab", "tp", "pp", "dp"),
    *("mbs", "gbs", "recompute", "sp", "zero", "attention", "precision"),
    *("seconds", "memory_gb", "early_stop"),
]

# layers, hidden, heads, tokens, sequences of a micro-batch, what is recomputed
SIZES = [
    (12, 768, 12, 1024, 8, "none"),
    (12, 768, 12, 1024, 32, "none"),
    (24, 1024, 16, 2048, 2, "none"),
    (24, 1024, 16, 2048, 8, "none"),
    (24, 1024, 16, 2048, 8, "full"),
    (24, 2048, 16, 2048, 1, "none"),
    (24, 2048, 16, 2048, 2, "none"),
    (24, 2048, 16, 2048, 4, "none"),
    (24, 2048, 16, 2048, 8, "none"),
    (24, 2048, 16, 2048, 4, "full"),
    (24, 2048, 16, 2048, 16, "full"),
    (24, 2048, 16, 8192, 1, "none"),
    (24, 2048, 16, 8192, 2, "full"),
    (12, 4096, 32, 2048, 1, "none"),
    (12, 4096, 32, 2048, 4, "none"),
    (12, 4096, 32, 2048, 4, "full"),
    (6, 6144, 48, 2048, 2, "none"),
    (6, 6144, 48, 2048, 4, "none"),
    (4, 8192, 64, 2048, 2, "none"),
    (4, 8192, 64, 2048, 4, "full"),
]


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, tokens: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(VOCABULARY, hidden)
        self.position = nn.Parameter(torch.zeros(tokens, hidden))
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.token(ids) + self.position
        for block in self.blocks:
            again = self.recompute == "full"
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        logits = functional.linear(self.norm(x), self.token.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def training_step(model: Gpt, batches: list[tuple[Tensor, Tensor]]) -> Callable[[], None]:
    """Return a step of AdamW whose gradients, weights and state are kept in single precision."""
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights]
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    for weight, master in zip(weights, masters, strict=True):

        def add(weight: Tensor, total: Tensor = master.grad) -> None:
            total.add_(weight.grad)
            weight.grad = None

        weight.register_post_accumulate_grad_hook(add)

    def step() -> None:
        for ids, labels in batches:
            model(ids, labels).backward()
        with torch.no_grad():
            optimizer.step()
            torch._foreach_copy_(weights, masters)
            torch._foreach_zero_([master.grad for master in masters])

    return step


def measured(size: tuple[int, int, int, int, int, str], *, compiled: bool) -> tuple[float, float]:
    """Return the seconds of a step, and the most bytes that its tensors took."""
    layers, hidden, heads, tokens, sequences, recompute = size
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Gpt(layers, hidden, heads, tokens, recompute).to(torch.bfloat16)
        if compiled:
            for block in model.blocks:
                block.compile()
        drawn = [torch.randint(VOCABULARY, (2, sequences, tokens)) for _ in range(MICRO_BATCHES)]
    step = training_step(model, [(ids, labels) for ids, labels in drawn])
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), torch.cuda.max_memory_allocated()


def rows(machine: str, *, compiled: bool, limit: float) -> Iterator[str]:
    start = time.perf_counter()
    for size in SIZES:
        if time.perf_counter() - start > limit:
            print(f"stopped after {limit} s, before {size}", file=sys.stderr)
            return
        layers, hidden, heads, tokens, sequences, recompute = size
        name = f"{layers}x{hidden}-{tokens}-{sequences}-{recompute}"
        try:
            seconds, held = measured(size, compiled=compiled)
        except torch.cuda.OutOfMemoryError:
            print(f"{name}: out of memory", file=sys.stderr)
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
            torch._dynamo.reset()
        numbers = (1, layers, hidden, heads, tokens, VOCABULARY, 1, 1, 1)
        of_step = (sequences, sequences * MICRO_BATCHES, recompute, False, 0, "flash", "bf16")
        yield json.dumps(
            [name, machine, *numbers, *of_step, round(seconds, 5), round(held / 1e9, 3), True]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", required=True, help="its name in the rows")
    parser.add_argument("--compile", action="store_true", help="compile each block")
    parser.add_argument(
        "--limit", type=float, default=1e9, help="seconds after which no row begins"
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU, and PyTorch sees none")
    mode = "compiled" if options.compile else "eager"
    versions = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    source = f"benchmarks/torch_steps.py, {versions}, {mode}, {time.strftime('%Y-%m-%d')}"
    print('schema = "hypar-opt/measured/1"')
    print(f"columns = {json.dumps(COLUMNS)}")
    print(f'\n[[set]]\nname = "one-gpu-{mode}"\nsource = "{source}"\nrows = [')
    for row in rows(options.machine, compiled=options.compile, limit=options.limit):
        print(f"  {row},", flush=True)
    print("]")


if __name__ == "__main__":
    main()
