"""Correctness of the forward megakernel on a GPU: float64 reference, poisoned outputs, same bits over runs and knobs.

Usage: correctness.py [small|backward|delays|full|all]... One line a check, last line the count; exit status 1 on a failure."""
import itertools
import os
import sys

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
import torch  # noqa: E402

import mok  # noqa: E402

LIMIT = 1e-2  # relative L1, design of the layer
passed = failed = 0


def report(name, ok, detail=""):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print(f"{'ok' if ok else 'FAIL'} {name} {detail}", flush=True)


def guarded(name):
    def decorate(function):
        try:
            function()
        except (mok.MokError, RuntimeError) as error:
            report(name, False, str(error)[:600])
    return decorate


def check_problem(library, name, problem, repeats=1, **knobs):
    @guarded(name)
    def _():
        layer = mok.Layer(library, problem, **knobs)
        output = [o.clone() for o in layer.forward()]
        error, largest = mok.relative_l1(output, problem.reference())
        same = all(all(torch.equal(a, b) for a, b in zip(layer.forward(), output)) for _ in range(repeats - 1))
        report(name, error <= LIMIT and same, f"relative L1 {error:.2e}, max abs {largest:.3f}, {repeats} runs same bits: {same}")
        layer.close()


def same_bits(library, name, problem, variants):
    """Every variant of the schedule knobs gives the bits of the first."""
    @guarded(name)
    def _():
        first, different = None, []
        for knobs in variants:
            layer = mok.Layer(library, problem, **knobs)
            output = [o.clone() for o in layer.forward()]
            first = first or output
            if not all(torch.equal(a, b) for a, b in zip(output, first)):
                different.append(knobs)
            layer.close()
        report(name, not different and not any(o.isnan().any() for o in first), f"{len(variants)} variants, different: {different}")


def small(library):
    for launch in (1, 0):
        for ranks, combine in itertools.product((1, 2, 4), (0, 1)):
            problem = mok.Problem(ranks, 2, 200, 512, 256, 3, seed=ranks)
            check_problem(library, f"small ranks {ranks} combine {'ring' if combine else 'direct'} launch {'one' if launch else 'separate'}",
                          problem, repeats=3, combine_ring=combine, one_launch=launch, wait_limit_ns=300_000_000)
            if failed:
                return
    check_problem(library, "small ranks 8", mok.Problem(8, 2, 130, 512, 256, 4, seed=8), one_launch=1, wait_limit_ns=300_000_000)
    for routing in ("zipf", "hot", "empty", "one_rank"):
        problem = mok.Problem(2, 4, 500, 1024, 384, 4, experts=32, routing=routing, dropped=0.1)
        check_problem(library, f"small routing {routing}, 10% dropped", problem, repeats=2, wait_limit_ns=300_000_000)
    problem = mok.Problem(2, 4, 700, 768, 384, 4)
    variants = [dict(comm_sms=c, minibatch_rows=m, ring_rows=m * r, lag=lag, combine_ring=k)
                for c, m, r, lag, k in itertools.product((1, 3, 8), (128, 512), (2, 4), (-1, 1), (0, 1))]
    same_bits(library, "small knobs", problem, variants)

    @guarded("capacity overflow")
    def _():
        layer = mok.Layer(library, mok.Problem(2, 2, 500, 512, 256, 4, routing="one_rank"), capacity_rows=1024)
        try:
            layer.forward()
            report("capacity overflow", False, "no error")
        except mok.MokError as error:
            report("capacity overflow", "capacity" in str(error) and "1024" in str(error), str(error))
        layer.close()


GRADIENTS = ("dx", "d_weights", "dw_gate", "dw_up", "dw_down", "shared dw_gate", "shared dw_up", "shared dw_down")


def check_backward(library, name, problem, repeats=2, expected=None, **knobs):
    """Gradients against float64 autograd formulas; bits over repeats and against `expected`. Returns the gradients."""
    result = []

    @guarded(name)
    def _():
        layer = mok.Layer(library, problem, backward=1, **knobs)
        layer.forward()
        first = [[t.clone() for t in tensors] for tensors in layer.backward()]
        reference = problem.backward_reference()
        errors = [mok.relative_l1(a, b)[0] for a, b in zip(first, reference)]
        same = expected is None or all(torch.equal(a, b) for x, y in zip(first, expected) for a, b in zip(x, y))
        if not knobs.get("accumulate"):
            for _ in range(repeats - 1):
                layer.forward()
                same &= all(torch.equal(a, b) for x, y in zip(layer.backward(), first) for a, b in zip(x, y))
        text = ", ".join(f"{n} {e:.2e}" for n, e in zip(GRADIENTS, errors))
        report(name, all(e <= LIMIT for e in errors) and same, f"{text}, same bits: {same}")
        result.extend(first)
        layer.close()

    return result or None


def backward(library):
    for launch, ranks in itertools.product((1, 0), (1, 2, 4)):
        problem = mok.Problem(ranks, 2, 200, 512, 256, 3, seed=ranks, backward=True)
        check_backward(library, f"backward ranks {ranks} launch {'one' if launch else 'separate'}", problem, one_launch=launch,
                       wait_limit_ns=300_000_000)
        if failed:
            return
    for routing in ("zipf", "hot", "empty", "one_rank"):
        problem = mok.Problem(2, 4, 500, 1024, 512, 4, experts=32, routing=routing, dropped=0.1, backward=True)
        check_backward(library, f"backward routing {routing}, 10% dropped", problem, wait_limit_ns=300_000_000)
    problem = mok.Problem(2, 4, 700, 768, 512, 4, backward=True)
    problem.weights[0][:, 0] = 0.0
    problem.weights[1][:, 1] *= -1.0
    first = check_backward(library, "backward, weights zero and negative", problem)
    for saved in (-1, 1024):
        check_backward(library, f"backward saved_rows {saved}", problem, saved_rows=saved)
    for comm, minibatch, lag, combine in ((1, 128, 1, 0), (8, 512, -1, 1), (3, 256, 1, 0)):
        check_backward(library, f"backward comm_sms {comm} minibatch {minibatch} lag {lag} combine {combine}", problem, expected=first,
                       comm_sms=comm, minibatch_rows=minibatch, ring_rows=2 * minibatch, lag=lag, combine_ring=combine)
    check_backward(library, "backward FP32 main gradients", problem, accumulate=1)
    for shared, clamp, tokens in ((1, 0.0, 700), (2, 0.0, 64), (0, 0.5, 300), (1, 0.5, 130)):
        name = f"{shared} shared experts, clamp {clamp}, {tokens} tokens"
        problem = mok.Problem(2, 4, tokens, 768, 512, 4, backward=True, shared=shared, clamp=clamp, dropped=0.1)
        check_problem(library, f"forward {name}", problem, repeats=2)
        check_backward(library, f"backward {name}", problem)
        check_backward(library, f"backward {name}, replayed, one launch", problem, saved_rows=-1, one_launch=1)


def graph(library):
    """A training step captured in a CUDA graph gives the bits of the eager one, replay after replay, for changed inputs too."""
    @guarded("CUDA graph")
    def _():
        problem = mok.Problem(2, 4, 300, 512, 256, 4, backward=True)
        layer = mok.Layer(library, problem, backward=1, one_launch=1)

        def tensors():
            return [t for ts in [problem.output] + layer.gradients for t in ts]

        def step():
            layer.enqueue()
            layer.enqueue_backward()

        step()
        layer.check()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        different = 0
        for seed in range(5):
            for rank in range(2):
                problem.x[rank].copy_(torch.randn(problem.x[rank].shape, device="cuda"))
                problem.ids[rank].copy_(torch.randint(-1, 8, problem.ids[rank].shape, device="cuda"))
            step()
            layer.check()
            eager = [t.clone() for t in tensors()]
            for t in tensors():
                t.fill_(float("nan"))
            captured.replay()
            layer.check()
            different += not all(torch.equal(a, b) for a, b in zip(eager, tensors()))
        report("CUDA graph, 5 replays", different == 0, f"{different} differ")
        layer.close()


def full_backward(library):
    for model in ("glm-5.2", "qwen3.5"):
        check_backward(library, f"{model} backward", mok.Problem.of_model(model, 2, backward=True), repeats=5)
        torch.cuda.empty_cache()


def full(library):
    for model, ranks in itertools.product(("glm-5.2", "qwen3.5"), (1, 2, 4)):
        problem = mok.Problem.of_model(model, ranks)
        check_problem(library, f"{model} ranks {ranks}", problem, repeats=20 if ranks == 2 else 2)
        if ranks == 4:
            continue
        same_bits(library, f"{model} ranks {ranks} knobs", problem,
                  [dict(comm_sms=c, minibatch_rows=m, ring_rows=4 * m) for c in (2, 4, 8) for m in (1024, 2048)] + [dict(combine_ring=1)])
        del problem
        torch.cuda.empty_cache()


def delays(library):
    @guarded("200 launches with random delays")
    def _():
        problem = mok.Problem(4, 2, 300, 512, 256, 4, seed=3)
        wrong = 0
        for combine in (0, 1):
            layer = mok.Layer(library, problem, combine_ring=combine, minibatch_rows=128, ring_rows=256, lag=1)
            first = [o.clone() for o in layer.forward()]
            for seed in range(100):
                layer.adjust(comm_sms=layer.options().comm_sms, delay_seed=seed + 1, delay_limit_ns=20000)
                wrong += not all(torch.equal(a, b) for a, b in zip(layer.forward(), first))
            layer.close()
        report("200 launches with random delays", wrong == 0, f"{wrong} differ")


def main():
    which = sys.argv[1:] or ["all"]
    library = mok.load_library()
    for name, function in (("small", small), ("backward", backward), ("backward", graph), ("delays", delays), ("full", full), ("full", full_backward)):
        if (name in which or "all" in which) and not failed:
            function(library)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


main()
