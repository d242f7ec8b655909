"""A bucket four times the device memory that it may use, against the same bucket in one piece.

    python benchmarks/streaming.py [--cells 1e9] [--output FILE]

Both start with the inputs in page-locked host memory and end with the message there. The one in pieces may use a
quarter of what the bucket's tables take, once with the GPU alone and once with CPU cores taking chunks as well.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.elimination.buckets import INT32, bucket
from dmcmc.inference.elimination.arena_kernels import place_inputs
from dmcmc.inference.elimination.cuda.stream import cut, stream_bucket
from dmcmc.inference.elimination.eliminate import Elimination, run_on_cpu
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.runtime.device import shared_device
from dmcmc.inference.runtime.threads import cores


def main() -> None:
    """Measure two kinds of bucket."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=float, default=1e9)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = shared_device()
    lines = []
    for kind, domain in (("child", 10), ("split", 4)):
        flat, plan, _ = bucket(domain, 4, kind, options.cells)
        arena = device.page_locked(plan.entries, INT32.dtype)
        work = Elimination(plan, arena, INT32)
        place_inputs(plan.program, arena, *flat, np.int32(INT32.lowest))
        run_on_cpu(work, 0, 1, MAX_PLUS, cores())
        message = work.table(plan.output(0)).values
        expected = message.copy()
        total = plan.entries * 4
        lines.append(f"{kind}, |D| = {domain}, {plan.cells:.3g} cells, tables of {total / 1e9:.2f} GB, {cores()} cores")
        once = 0.0
        for name, limit, share in (
            ("one piece", 4 * total, False),
            ("a quarter of the memory, GPU", total // 4, False),
            ("a quarter of the memory, GPU and CPU", total // 4, True),
        ):
            best, done = float("inf"), {}
            for _ in range(4):
                message[...] = 0
                start = time.perf_counter()
                done = stream_bucket(work, 0, MAX_PLUS, cores(), device, limit, share)
                best = min(best, time.perf_counter() - start)
                assert np.array_equal(message, expected)
            once = once or best
            chunks = len(cut(plan, 0, limit // 4).chunks)
            lines.append(f"  {name:38s} {best * 1e3:9.1f} ms  {best / once:5.2f} x  {chunks} chunks {done}")
            print("\n".join(lines[-2:]), flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
