"""The MoE layer through ctypes, on PyTorch tensors: shapes, random inputs, a float64 reference, and the unfused baseline.

Used by tests/gpu/correctness.py and tests/gpu/bench.py on a machine with a GPU and PyTorch. Inputs are random; outputs are
poisoned with NaN by forward() before each pass."""
import ctypes
import itertools
import os
import pathlib

import torch

# name: experts of the model, hidden, intermediate, top-k, experts a rank at EP 64 (kernels/models.def)
MODELS = {
    "kimi-k2.7": (384, 7168, 2048, 8, 6),
    "glm-5.2": (256, 6144, 2048, 8, 4),
    "qwen3.5": (512, 4096, 1024, 10, 8),
    "deepseek-v4-pro": (384, 7168, 3072, 6, 6),
}


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 512), ("hint", ctypes.c_char * 512)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_int32) for name in "ranks experts_per_rank tokens hidden intermediate top_k shared_experts".split()
    ] + [("swiglu_clamp", ctypes.c_float)] + [
        (name, ctypes.c_int32)
        for name in ("rank_ctas comm_sms minibatch_rows ring_rows lag "
                     "combine_ring saved_rows capacity_rows backward accumulate one_launch").split()
    ] + [("wait_limit_ns", ctypes.c_int64), ("delay_seed", ctypes.c_uint32), ("delay_limit_ns", ctypes.c_uint32)]


def load_library():
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "libmok.so"
    library = ctypes.CDLL(os.environ.get("MOK_LIBRARY", str(default)), mode=ctypes.RTLD_LOCAL)
    library.mok_layer_forward_flops.restype = ctypes.c_double
    library.mok_layer_options.restype = ctypes.POINTER(Options)
    return library


class MokError(RuntimeError):
    pass


class Problem:
    """Random weights, inputs and routes of all ranks. experts: model's full count, folded onto the experts present."""

    def __init__(self, ranks, experts_per_rank, tokens, hidden, intermediate, top_k, experts=None, routing="uniform", seed=1,
                 dropped=0.0, backward=False, shared=0, clamp=0.0):
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def normal(*shape, deviation=1.0):
            values = torch.empty(*shape, dtype=torch.bfloat16, device="cuda")
            flat = values.view(-1)
            for begin in range(0, flat.numel(), 1 << 26):  # in parts: FP32 normals of all weights at once would not be needed
                part = flat[begin:begin + (1 << 26)]
                part.copy_(torch.randn(part.shape, generator=generator, device="cuda") * deviation)
            return values

        self.shape = (ranks, experts_per_rank, tokens, hidden, intermediate, top_k)
        self.shared, self.clamp = shared, clamp
        self.x = [normal(tokens, hidden) for _ in range(ranks)]
        self.w_gate = [normal(experts_per_rank, intermediate, hidden, deviation=hidden**-0.5) for _ in range(ranks)]
        self.w_up = [normal(experts_per_rank, intermediate, hidden, deviation=hidden**-0.5) for _ in range(ranks)]
        self.w_down = [normal(experts_per_rank, hidden, intermediate, deviation=intermediate**-0.5) for _ in range(ranks)]
        self.shared_weights = [[normal(shared, intermediate, hidden, deviation=hidden**-0.5), normal(shared, intermediate, hidden, deviation=hidden**-0.5),
                                normal(shared, hidden, intermediate, deviation=intermediate**-0.5)] for _ in range(ranks if shared else 0)]
        self.output = [torch.empty_like(x) for x in self.x]
        self.dy = [normal(tokens, hidden) for _ in range(ranks)] if backward else None
        experts = experts or max(16, ranks * experts_per_rank)
        self.ids, self.weights = [], []
        for _ in range(ranks):
            ids = draw_routes(routing, tokens, top_k, experts, ranks * experts_per_rank, generator)
            drop = torch.rand(ids.shape, generator=generator, device="cuda") < dropped
            self.ids.append(torch.where(drop, -1, ids).to(torch.int32).contiguous())
            self.weights.append(torch.softmax(torch.randn(tokens, top_k, generator=generator, device="cuda"), 1).contiguous())

    def read_routes(self, path):
        """Takes the routes of a routes file (kernels/routing.h) instead of the drawn ones."""
        ranks, _, tokens, _, _, top_k = self.shape
        with open(path, encoding="ascii") as file:
            header = file.readline().split()
            if header[:3] != ["mokscope", "routes", "1"] or [int(header[i]) for i in (4, 6, 8)] != [ranks, tokens, top_k]:
                raise ValueError(f"{path}: {' '.join(header)} does not fit {ranks} ranks, {tokens} tokens, top-{top_k}")
            pairs = [field.split(":") for line in file for field in line.split()]
        ids = torch.tensor([int(p[0]) for p in pairs], dtype=torch.int32, device="cuda").view(ranks, tokens, top_k)
        weights = torch.tensor([float(p[1]) for p in pairs], dtype=torch.float32, device="cuda").view(ranks, tokens, top_k)
        self.ids, self.weights = [i.contiguous() for i in ids], [w.contiguous() for w in weights]

    @classmethod
    def of_model(cls, name, ranks, tokens=2048, **rest):
        experts, hidden, intermediate, top_k, per_rank = MODELS[name]
        return cls(ranks, per_rank, tokens, hidden, intermediate, top_k, experts=experts, **rest)

    def activation(self, gate, up):
        if self.clamp > 0:
            gate, up = gate.clamp(max=self.clamp), up.clamp(-self.clamp, self.clamp)
        return torch.nn.functional.silu(gate) * up

    def reference(self):
        """Float64, no rounding inside; independent of the layer's order. List of [tokens, hidden]."""
        ranks, per_rank, tokens, hidden, _, top_k = self.shape
        x, ids = torch.cat(self.x), torch.cat(self.ids)
        weights = torch.cat(self.weights).double()
        out = torch.zeros(ranks * tokens, hidden, dtype=torch.float64, device="cuda")
        for rank, s in itertools.product(range(ranks), range(self.shared)):
            gate, up, down = (w[s].double() for w in self.shared_weights[rank])
            rows = self.x[rank].double()
            out[rank * tokens:(rank + 1) * tokens] += self.activation(rows @ gate.T, rows @ up.T) @ down.T
        for expert in range(ranks * per_rank):
            rank, local = divmod(expert, per_rank)
            token, slot = (ids == expert).nonzero(as_tuple=True)
            if token.numel() == 0:
                continue
            rows = x[token].double()
            gate = rows @ self.w_gate[rank][local].double().T
            up = rows @ self.w_up[rank][local].double().T
            y = self.activation(gate, up) @ self.w_down[rank][local].double().T
            out.index_add_(0, token, y * weights[token, slot][:, None])
        return list(out.split(tokens))

    def backward_reference(self):
        """Float64 gradients of sum(output * dy): (dx, d_weights, dw_gate, dw_up, dw_down, and these three of the shared experts),
        lists over ranks. d_weights of dropped routes are 0."""
        ranks, per_rank, tokens, hidden, _, top_k = self.shape
        x, dy, ids = torch.cat(self.x), torch.cat(self.dy).double(), torch.cat(self.ids)
        weights = torch.cat(self.weights).double()
        dx = torch.zeros(ranks * tokens, hidden, dtype=torch.float64, device="cuda")
        d_weights = torch.zeros(ranks * tokens, top_k, dtype=torch.float64, device="cuda")

        def expert_gradients(token, s, w_gate, w_up, w_down):
            rows, d_rows = x[token].double(), dy[token]
            gate, up = rows @ w_gate.T, rows @ w_up.T
            limit = self.clamp if self.clamp > 0 else float("inf")
            gate_in, up_in = gate <= limit, up.abs() <= limit
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            sigma = torch.sigmoid(gate)
            h = gate * sigma * up
            dh = d_rows @ w_down
            d_gate = s * dh * up * sigma * (1 + gate * (1 - sigma)) * gate_in
            d_up = s * dh * gate * sigma * up_in
            dx.index_add_(0, token, d_gate @ w_gate + d_up @ w_up)
            return (dh * h).sum(1), (d_gate.T @ rows, d_up.T @ rows, d_rows.T @ (s * h))

        matrices, shared = ([], [], []), ([], [], [])
        for expert in range(ranks * per_rank):
            rank, local = divmod(expert, per_rank)
            token, slot = (ids == expert).nonzero(as_tuple=True)
            d_weights[token, slot], values = expert_gradients(token, weights[token, slot][:, None],
                                                              *(w[rank][local].double() for w in (self.w_gate, self.w_up, self.w_down)))
            for matrix, value in zip(matrices, values):
                matrix.append(value)
        for rank, s in itertools.product(range(ranks), range(self.shared)):
            token = torch.arange(rank * tokens, (rank + 1) * tokens, device="cuda")
            _, values = expert_gradients(token, 1.0, *(w[s].double() for w in self.shared_weights[rank]))
            for matrix, value in zip(shared, values):
                matrix.append(value)
        stacked = [[torch.stack(m[r * n:(r + 1) * n]) for r in range(ranks)]
                   for group, n in ((matrices, per_rank), (shared, self.shared)) if n for m in group]
        return list(dx.split(tokens)), list(d_weights.split(tokens)), *stacked

    def unfused(self):
        """Closure of one forward pass in plain PyTorch: gather, grouped_mm, SwiGLU, grouped_mm, weighted combine. The
        sort by expert is inside, as routing is inside the layer."""
        ranks, per_rank, tokens, hidden, intermediate, top_k = self.shape
        x, ids, weights = torch.cat(self.x), torch.cat(self.ids), torch.cat(self.weights)
        gate_up = torch.cat([torch.cat(self.w_gate), torch.cat(self.w_up)], 1).transpose(1, 2)
        down = torch.cat(self.w_down).transpose(1, 2)
        experts = ranks * per_rank

        def forward():
            flat = ids.view(-1)
            order = torch.argsort(flat)
            counts = torch.bincount(flat, minlength=experts)
            offsets = counts.cumsum(0).to(torch.int32)
            rows = x[order // top_k]
            both = torch._grouped_mm(rows, gate_up, offs=offsets)
            gate, up = both.split(intermediate, 1)
            y = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down, offs=offsets)
            scaled = torch.empty_like(y)
            scaled[order] = y * weights.view(-1)[order][:, None].to(y.dtype)
            return scaled.view(-1, top_k, hidden).sum(1)

        return forward


    def unfused_backward(self):
        """Closure of the backward pass of unfused() by autograd: gradients of x, router weights and all weights."""
        ranks, per_rank, _, hidden, intermediate, top_k = self.shape
        x, weights = torch.cat(self.x).requires_grad_(), torch.cat(self.weights).requires_grad_()
        gate_up = torch.cat([torch.cat(self.w_gate), torch.cat(self.w_up)], 1).requires_grad_()
        down, dy, flat = torch.cat(self.w_down).requires_grad_(), torch.cat(self.dy), torch.cat(self.ids).view(-1)
        order = torch.argsort(flat)
        offsets = torch.bincount(flat, minlength=ranks * per_rank).cumsum(0).to(torch.int32)
        both = torch._grouped_mm(x[order // top_k], gate_up.transpose(1, 2), offs=offsets)
        gate, up = both.split(intermediate, 1)
        y = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.transpose(1, 2), offs=offsets)
        scaled = torch.empty_like(y).index_copy(0, order, y * weights.view(-1)[order][:, None].to(y.dtype))
        output = scaled.view(-1, top_k, hidden).sum(1)
        return lambda: torch.autograd.grad(output, (x, weights, gate_up, down), dy, retain_graph=True)


def draw_routes(routing, tokens, top_k, experts, present, generator):
    """Top-k routes without repetition over the model's experts (Gumbel top-k), folded onto the experts present."""
    weights = torch.ones(experts, device="cuda")
    if routing == "zipf":
        weights = torch.arange(1, experts + 1, device="cuda", dtype=torch.float32)**-1.2
    elif routing == "hot":
        weights[0] = experts
    elif routing == "empty":
        weights[experts // 2:] = 1e-30
        return (torch.rand(tokens, experts, generator=generator, device="cuda") + 1e-3 * weights).topk(top_k, 1).indices % max(1, present // 2)
    elif routing == "one_rank":
        return torch.randint(0, max(1, present // 2), (tokens, top_k), generator=generator, device="cuda")
    uniform = torch.rand(tokens, experts, generator=generator, device="cuda").clamp_min(1e-20)
    return (weights.log() - (-uniform.log()).log()).topk(top_k, 1).indices % present


class Layer:
    def __init__(self, library, problem, **knobs):
        self.library, self.problem = library, problem
        self.handle = ctypes.c_void_p()
        options = Options()
        library.mok_options_init(ctypes.byref(options))
        for name, value in zip("ranks experts_per_rank tokens hidden intermediate top_k".split(), problem.shape):
            setattr(options, name, value)
        options.shared_experts, options.swiglu_clamp = problem.shared, problem.clamp
        for name, value in knobs.items():
            setattr(options, name, value)
        self.call("mok_layer_create", ctypes.byref(options), ctypes.byref(self.handle))
        for rank in range(problem.shape[0]):
            pointers = [t.data_ptr() for t in (problem.x[rank], problem.ids[rank], problem.weights[rank], problem.w_gate[rank],
                                               problem.w_up[rank], problem.w_down[rank], problem.output[rank])]
            self.call("mok_layer_bind", self.handle, ctypes.c_int32(rank), *map(ctypes.c_void_p, pointers))
        self.gradients = []
        if knobs.get("backward"):
            self.bind_backward(torch.float32 if knobs.get("accumulate") else torch.bfloat16)
        if problem.shared:
            self.bind_shared(torch.float32 if knobs.get("accumulate") else torch.bfloat16)

    def bind_shared(self, gradient_type):
        backward = bool(self.gradients)
        shared = [[torch.zeros(w[i].shape, dtype=gradient_type, device="cuda") for w in self.problem.shared_weights] for i in range(3)]
        if backward:
            self.gradients += shared
        for rank, weights in enumerate(self.problem.shared_weights):
            pointers = [w.data_ptr() for w in weights] + [m[rank].data_ptr() if backward else None for m in shared]
            self.call("mok_layer_bind_shared", self.handle, ctypes.c_int32(rank), *map(ctypes.c_void_p, pointers))

    def bind_backward(self, gradient_type):
        """Gradients, poisoned; main gradients start at 0 and are added to."""
        problem, ranks = self.problem, range(self.problem.shape[0])
        self.gradients = [[torch.empty_like(x) for x in problem.x], [torch.empty_like(w) for w in problem.weights]]
        self.gradients += [[torch.zeros(w.shape, dtype=gradient_type, device="cuda") for w in ws]
                           for ws in (problem.w_gate, problem.w_up, problem.w_down)]
        for rank in ranks:
            pointers = [problem.dy[rank].data_ptr()] + [tensors[rank].data_ptr() for tensors in self.gradients]
            self.call("mok_layer_bind_backward", self.handle, ctypes.c_int32(rank), *map(ctypes.c_void_p, pointers))

    def call(self, name, *arguments):
        error = Error()
        if getattr(self.library, name)(*arguments, ctypes.byref(error)) != 0:
            raise MokError(f"{name}: {error.message.decode()} | hint: {error.hint.decode()}")

    def enqueue(self):
        self.call("mok_layer_forward", self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def forward(self):
        for output in self.problem.output:
            output.fill_(float("nan"))
        self.enqueue()
        self.check()
        return self.problem.output

    def enqueue_backward(self):
        self.call("mok_layer_backward", self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def backward(self):
        """(dx, d_weights, dw_gate, dw_up, dw_down) of the last forward pass, lists over ranks; poisoned before."""
        for tensors in self.gradients:
            for tensor in tensors:
                if tensor.dtype == torch.bfloat16 or tensors is self.gradients[1]:
                    tensor.fill_(float("nan"))
        self.enqueue_backward()
        self.check()
        return self.gradients

    def check(self):
        self.call("mok_layer_check", self.handle)

    def adjust(self, comm_sms=0, delay_seed=0, delay_limit_ns=0):
        self.call("mok_layer_adjust", self.handle, ctypes.c_int32(comm_sms), ctypes.c_uint32(delay_seed),
                  ctypes.c_uint32(delay_limit_ns))

    def reset(self):
        self.call("mok_layer_reset", self.handle)

    def flops(self):
        return self.library.mok_layer_forward_flops(self.handle)

    def options(self):
        return self.library.mok_layer_options(self.handle).contents

    def close(self):
        if self.handle:
            torch.cuda.synchronize()
            self.library.mok_layer_destroy(self.handle)
            self.handle = ctypes.c_void_p()


def relative_l1(output, reference):
    """(relative L1, maximum absolute error) over all ranks; NaN anywhere gives NaN."""
    difference = sum((o.double() - r).abs().sum() for o, r in zip(output, reference))
    total = sum(r.abs().sum() for r in reference)
    largest = max((o.double() - r).abs().max() for o, r in zip(output, reference))
    return float(difference / total), float(largest)


def median_ms(function, repeats=50, warm_up=5):
    """Median and 5th/95th percentile of GPU time in ms, one event pair a call."""
    for _ in range(warm_up):
        function()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in pairs:
        begin.record()
        function()
        end.record()
    torch.cuda.synchronize()
    times = sorted(begin.elapsed_time(end) for begin, end in pairs)
    return times[len(times) // 2], times[len(times) // 20], times[-1 - len(times) // 20]
