"""The C reference layer against PyTorch in float64, and 256 sampled tokens of the megakernel at full shapes against the C reference.

One line a check, last line the count; exit status 1 on a failure."""
import concurrent.futures
import ctypes
import os
import sys

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
import torch  # noqa: E402

import mok  # noqa: E402

THREADS = 16
counts = {"ok": 0, "FAIL": 0}


class Reference(ctypes.Structure):
    """struct mok_reference of kernels/reference.h."""
    _fields_ = [(name, ctypes.c_int32) for name in
                "ranks experts_per_rank tokens hidden intermediate top_k shared_experts".split()] + [
        ("swiglu_clamp", ctypes.c_float)] + [
        (name, ctypes.POINTER(ctypes.c_void_p)) for name in
        "x expert_ids weights w_gate w_up w_down shared_gate shared_up shared_down".split()]


def report(name, ok, detail):
    counts["ok" if ok else "FAIL"] += 1
    print(f"{'ok' if ok else 'FAIL'} {name}: {detail}", flush=True)


class HostProblem:
    """A problem's tensors on the host, as the C reference takes them."""

    def __init__(self, problem):
        self.struct = Reference(*problem.shape, problem.shared, problem.clamp)
        self.kept = []
        arrays = [problem.x, problem.ids, problem.weights, problem.w_gate, problem.w_up, problem.w_down]
        arrays += [[w[i] for w in problem.shared_weights] for i in range(3)]
        for (name, _), tensors in zip(Reference._fields_[8:], arrays):
            host = [t.cpu().contiguous() for t in tensors]
            pointers = (ctypes.c_void_p * max(1, len(host)))(*[t.data_ptr() for t in host])
            self.kept += [host, pointers]
            setattr(self.struct, name, ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p)))

    def forward(self, library, rank, tokens):
        """BF16 output rows of these tokens."""
        chunks = [c for c in torch.tensor(tokens, dtype=torch.int32).chunk(THREADS) if len(c)]

        def run(chunk):
            output = torch.empty(len(chunk), self.struct.hidden, dtype=torch.bfloat16)
            error = mok.Error()
            if library.mok_reference_forward(ctypes.byref(self.struct), ctypes.c_int32(rank), ctypes.c_void_p(chunk.data_ptr()),
                                             ctypes.c_int32(len(chunk)), ctypes.c_void_p(output.data_ptr()), ctypes.byref(error)) != 0:
                raise mok.MokError(error.message.decode())
            return output

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            return torch.cat(list(pool.map(run, chunks)))


def check_reference(library):
    for ranks, experts, tokens, hidden, intermediate, top_k, rest in ((1, 2, 64, 256, 128, 2, {}), (2, 4, 90, 512, 256, 4, {"dropped": 0.1}),
                                                                      (4, 2, 40, 256, 384, 3, {"shared": 1, "clamp": 0.5})):
        problem = mok.Problem(ranks, experts, tokens, hidden, intermediate, top_k, **rest)
        host = HostProblem(problem)
        output = [host.forward(library, rank, list(range(tokens))).cuda() for rank in range(ranks)]
        error, _ = mok.relative_l1(output, problem.reference())
        report(f"C against PyTorch float64, {ranks} ranks, H {hidden}, I {intermediate} {rest}", error <= 5e-3, f"relative L1 {error:.2e}")


def check_sampled(library):
    for model in ("glm-5.2", "qwen3.5"):
        problem = mok.Problem.of_model(model, 2)
        layer = mok.Layer(library, problem)
        output = [o.cpu() for o in layer.forward()]
        layer.close()
        host = HostProblem(problem)
        tokens = sorted(torch.randperm(problem.shape[2], generator=torch.Generator().manual_seed(5))[:128].tolist())
        expected = [host.forward(library, rank, tokens) for rank in range(2)]
        got = [o[tokens] for o in output]
        error, largest = mok.relative_l1(got, [e.double() for e in expected])
        equal = sum((g == e).sum().item() for g, e in zip(got, expected)) / sum(g.numel() for g in got)
        report(f"{model}, 256 sampled tokens against C", error <= 1e-2, f"relative L1 {error:.2e}, max abs {largest:.4f}, {equal:.1%} of elements equal")
        torch.cuda.empty_cache()


def main():
    library = mok.load_library()
    check_reference(library)
    check_sampled(library)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, 0 skipped")
    sys.exit(1 if counts["FAIL"] else 0)


main()
