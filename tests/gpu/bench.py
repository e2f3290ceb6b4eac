"""Time of the forward megakernel beside what it must be compared with, in one run: plain, with all probes recorded, unfused
PyTorch (eager, and torch.compile with --compile), and the dense 8192^3 BF16 ceiling.

Usage: bench.py [--models A,B] [--ranks 2] [--tokens 2048] [--routing uniform] [--rounds 3] [--repeats 50] [--backward] [--compile]
                [--out FOLDER]
Writes bench.json and bench.md (the README's table) into FOLDER. FLOPs are the useful ones: no padding counted.
Plain and recorded are runs of `mokscope run`, alternating, one process each; the baselines run here. Every time is a median."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
import torch  # noqa: E402

import mok  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ceiling_tflops(repeats):
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / mok.median_ms(lambda: torch.mm(a, b, out=out), repeats)[0] / 1e9


def run_layer(arguments, model, folder, recorded=False, write_routes=False):
    """One `mokscope run`; its JSON object. All runs of a model have the same routes."""
    routes = os.path.join(folder, f"{model}.routes")
    command = [str(ROOT / "build" / "mokscope"), "run", "--model", model, "--ranks", str(arguments.ranks), "--tokens",
               str(arguments.tokens), "--json", "--passes", "1" if write_routes else str(arguments.repeats)]
    command += ["--routing", arguments.routing, "--write-routes", routes] if write_routes else ["--routes", routes]
    command += ["--backward"] if arguments.backward else []
    command += ["-o", os.path.join(folder, f"{model}.db"), "--force"] if recorded else ["--plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stdout[-300:]}{done.stderr[-500:]}")
    return json.loads(done.stdout)


def bench_unfused(arguments, model, folder):
    problem = mok.Problem.of_model(model, arguments.ranks, tokens=arguments.tokens, backward=arguments.backward)
    problem.read_routes(os.path.join(folder, f"{model}.routes"))
    forward = problem.unfused()
    row = {"unfused_ms": mok.median_ms(forward, arguments.repeats)[0]}
    if arguments.compile:
        row["compiled_ms"] = mok.median_ms(torch.compile(forward, dynamic=False), arguments.repeats)[0]
    if arguments.backward:
        row["unfused_backward_ms"] = mok.median_ms(problem.unfused_backward(), arguments.repeats)[0]
    row["flops"] = 6.0 * sum(int((ids >= 0).sum()) for ids in problem.ids) * problem.shape[3] * problem.shape[4]
    del problem, forward
    torch.cuda.empty_cache()
    return row


def bench_model(arguments, model, folder):
    row = {"model": model, "ceiling_tflops": ceiling_tflops(arguments.repeats)}
    run_layer(arguments, model, folder, write_routes=True)
    row.update(bench_unfused(arguments, model, folder))
    plain, recorded = [], []
    for _ in range(arguments.rounds):
        plain.append(run_layer(arguments, model, folder))
        recorded.append(run_layer(arguments, model, folder, recorded=True))
    row["plain_ms"] = statistics.median(r["pass_ms"]["median"] for r in plain)
    row["recorded_ms"] = statistics.median(r["pass_ms"]["median"] for r in recorded)
    row["plain_rounds_ms"] = [r["pass_ms"] for r in plain]
    row["recorded_rounds_ms"] = [r["pass_ms"] for r in recorded]
    pairs = [b["pass_ms"]["median"] / a["pass_ms"]["median"] - 1 for a, b in zip(plain, recorded)]
    row["probe_overhead"] = statistics.median(pairs)
    row["probe_overhead_range"] = [min(pairs), max(pairs)]
    if arguments.backward:
        row["backward_ms"] = statistics.median(r["backward_ms"]["median"] for r in plain)
        row["backward_recorded_ms"] = statistics.median(r["backward_ms"]["median"] for r in recorded)
    row["run"] = plain[-1]
    return row


def tflops(row, key):
    return row["flops"] / row[key] / 1e9


def markdown(result):
    lines = [f"{result['device']}, {result['ranks']} ranks x {result['tokens']} tokens on one GPU, BF16, {result['routing']} routing, the same "
             f"routes for all; medians of {result['rounds']} x {result['repeats']} passes. Ceiling: dense 8192^3 BF16 matrix product, same run. "
             f"FLOPs are useful ones, no padding.", "", "Forward", "",
             "| shape | megakernel | recorded | probes cost | unfused PyTorch | torch.compile | against the faster | ceiling | share |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        compiled = row.get("compiled_ms")
        best = min(row["unfused_ms"], compiled or row["unfused_ms"])
        low, high = row["probe_overhead_range"]
        lines.append(
            f"| {row['model']} | {row['plain_ms']:.2f} ms, {tflops(row, 'plain_ms'):.0f} TFLOP/s | {row['recorded_ms']:.2f} ms "
            f"| {row['probe_overhead']:+.1%} ({low:+.1%} to {high:+.1%}) | {row['unfused_ms']:.2f} ms, {tflops(row, 'unfused_ms'):.0f} TFLOP/s "
            f"| {f'{compiled:.2f} ms' if compiled else 'not run'} | {best / row['plain_ms']:.2f}x | {row['ceiling_tflops']:.0f} TFLOP/s "
            f"| {tflops(row, 'plain_ms') / row['ceiling_tflops']:.1%} |")
    if "backward_ms" in result["rows"][0]:
        lines += ["", "Backward", "", "| shape | megakernel | recorded | unfused PyTorch | against it | share of the ceiling |",
                  "| --- | --- | --- | --- | --- | --- |"]
        for row in result["rows"]:
            rate = 2 * tflops(row, "backward_ms")
            lines.append(f"| {row['model']} | {row['backward_ms']:.2f} ms, {rate:.0f} TFLOP/s | {row['backward_recorded_ms']:.2f} ms "
                         f"| {row['unfused_backward_ms']:.2f} ms | {row['unfused_backward_ms'] / row['backward_ms']:.2f}x "
                         f"| {rate / row['ceiling_tflops']:.1%} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(mok.MODELS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--routing", default="uniform")
    parser.add_argument("--out", default=".")
    arguments = parser.parse_args()
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda, "ranks": arguments.ranks,
              "tokens": arguments.tokens, "routing": arguments.routing, "rounds": arguments.rounds, "repeats": arguments.repeats, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models.split(","):
            if model not in mok.MODELS:
                sys.exit(f"unknown model '{model}'; known: {', '.join(mok.MODELS)}")
            result["rows"].append(bench_model(arguments, model, folder))
            print("\n".join(line for line in markdown(dict(result, rows=result["rows"][-1:])).splitlines() if line.startswith(f"| {model}")),
                  flush=True)
    out = pathlib.Path(arguments.out)
    (out / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "bench.md").write_text(markdown(result))


main()
