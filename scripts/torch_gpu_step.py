#!/usr/bin/env python3
"""Training steps of a model in PyTorch, for scripts/gpu_check.sh to set beside ours.

usage: torch_gpu_step.py MODEL BATCH SEQ_LEN MICRO STEPS [--device DEVICE] [--no-compile]
MODEL is one of our presets below. fp32 master weights, bf16 products (autocast), PyTorch's fused attention and
fused AdamW, gradient clipping, torch.compile; made-up tokens, gradients of BATCH / MICRO micro-batches summed.
Prints one JSON document: the median of STEPS after a warm-up. Needs PyTorch 2.
"""
import argparse, json, statistics, time
import torch
import torch.nn.functional as F
from torch import nn

# layers, width, heads, kv heads, feed-forward width, vocabulary; all with tied embeddings
SIZES = {
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50257),
    "gpt2-355m": ("gpt2", 24, 1024, 16, 16, 4096, 50257),
    "llama-3.2-1b": ("llama", 16, 2048, 32, 8, 8192, 128256),
    "qwen2.5-1.5b": ("qwen2", 28, 1536, 12, 2, 8960, 151936),
    "tiny-gpt2": ("gpt2", 2, 64, 4, 4, 128, 257),
    "tiny-llama": ("llama", 2, 64, 4, 2, 128, 257),
    "tiny-qwen2": ("qwen2", 2, 64, 4, 2, 128, 257),
}


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * self.gain).to(x.dtype)


def turned(x, cosine, sine):  # (B, heads, T, D)
    low, high = x.chunk(2, -1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, family, width, heads, kv_heads, ffn):
        super().__init__()
        self.gpt2, self.heads, self.kv_heads, self.head = family == "gpt2", heads, kv_heads, width // heads
        norm = nn.LayerNorm if self.gpt2 else RmsNorm
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.head, bias=family != "llama")
        self.out = nn.Linear(width, width, bias=self.gpt2)
        self.up = nn.Linear(width, ffn if self.gpt2 else 2 * ffn, bias=self.gpt2)
        self.down = nn.Linear(ffn, width, bias=self.gpt2)

    def forward(self, x, angles):
        b, t, c = x.shape
        sizes = [self.heads, self.kv_heads, self.kv_heads]
        q, k, v = self.qkv(self.norm1(x)).view(b, t, -1, self.head).transpose(1, 2).split(sizes, 1)
        if not self.gpt2:
            q, k = turned(q, *angles), turned(k, *angles)
        if self.kv_heads != self.heads:
            k, v = (y.repeat_interleave(self.heads // self.kv_heads, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        h = self.up(self.norm2(x))
        if self.gpt2:
            h = F.gelu(h, approximate="tanh")
        else:
            gate, up = h.chunk(2, -1)
            h = F.silu(gate) * up
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, name, seq_len):
        super().__init__()
        family, layers, width, heads, kv_heads, ffn, vocab = SIZES[name]
        self.gpt2, self.vocab = family == "gpt2", vocab
        self.embed = nn.Embedding(vocab, width)
        if self.gpt2:
            self.positions = nn.Embedding(seq_len, width)
        self.blocks = nn.ModuleList(Block(family, width, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = (nn.LayerNorm if self.gpt2 else RmsNorm)(width)
        head = width // heads
        angle = torch.outer(torch.arange(seq_len), 1e4 ** (-torch.arange(0, head, 2) / head))
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        if self.gpt2:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.float().view(-1, self.vocab), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=SIZES)
    for name in ("batch", "seq_len", "micro", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    a = parser.parse_args()
    torch.manual_seed(1)
    on_gpu = a.device == "cuda"
    model = Model(a.model, a.seq_len).to(a.device)
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  **({"fused": True} if on_gpu else {}))
    run = model if a.no_compile else torch.compile(model)
    tokens = torch.randint(model.vocab, (a.batch, a.seq_len + 1), device=a.device)

    def step():
        for i in range(0, a.batch, a.micro):
            part = tokens[i : i + a.micro]
            with torch.autocast(a.device, dtype=torch.bfloat16):
                loss = run(part[:, :-1], part[:, 1:].contiguous())
            (loss * (a.micro / a.batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()

    seconds = []
    for i in range(a.steps + 3):
        start = time.perf_counter()
        step()
        if i >= 3:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    print(json.dumps({
        "framework": f"PyTorch {torch.__version__}{'' if a.no_compile else ', compiled'}",
        "model": a.model, "precision": "bf16", "batch": a.batch, "micro_batch": a.micro, "seq_len": a.seq_len,
        "parameters": parameters, "steps": a.steps, "step_seconds": median,
        "tokens_per_second": a.batch * a.seq_len / median,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else None}))


main()
