#!/usr/bin/env python3
"""The peer of compare_torch.py: AdamW steps of a model of a preset's shape in PyTorch on the CPU, with what PyTorch
offers for it (nn modules, fused attention where this version has it, autocast for bf16).
usage: torch_step.py MODEL BATCH SEQ_LEN THREADS fp32|bf16 STEPS
MODEL: gpt2-124m or smollm2-135m. Prints one JSON object: torch, parameters, seconds (of each step, the first included).
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

GPT2 = {"layers": 12, "width": 768, "heads": 12, "kv_heads": 12, "ffn": 3072, "vocab": 50257, "positions": 1024}
SMOLLM2 = {"layers": 30, "width": 576, "heads": 9, "kv_heads": 3, "ffn": 1536, "vocab": 49152, "theta": 1e5}
MODELS = {"gpt2-124m": GPT2, "smollm2-135m": SMOLLM2}


def attend(q, k, v):
    """Causal attention of (batch, heads, tokens, size); fewer heads of k and v are repeated."""
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    tokens = q.shape[2]
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, shape, bias):
        super().__init__()
        self.size = shape["width"] // shape["heads"]
        kv = shape["kv_heads"] * self.size
        self.q, self.k, self.v = (nn.Linear(shape["width"], n, bias=bias) for n in (shape["width"], kv, kv))
        self.out = nn.Linear(shape["width"], shape["width"], bias=bias)

    def forward(self, x, rotation):
        batch, tokens, width = x.shape
        q, k, v = (f(x).view(batch, tokens, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return self.out(attend(q, k, v).transpose(1, 2).reshape(batch, tokens, width))


def rotate(x, rotation):
    cosine, sine = rotation
    low, high = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat((-high, low), dim=-1) * sine).to(x.dtype)


class FusedQkv(nn.Module):
    """GPT-2's: one product for q, k and v."""

    def __init__(self, shape):
        super().__init__()
        width = shape["width"]
        self.heads, self.qkv, self.out = shape["heads"], nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, _):
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        return self.out(attend(q, k, v).transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width, ffn, self.llama = shape["width"], shape["ffn"], "theta" in shape
        norm = RmsNorm if self.llama else nn.LayerNorm
        self.first, self.second = norm(width), norm(width)
        self.attention = Attention(shape, bias=False) if self.llama else FusedQkv(shape)
        self.up, self.down = (nn.Linear(a, b, bias=not self.llama) for a, b in ((width, ffn), (ffn, width)))
        if self.llama:
            self.gate = nn.Linear(width, ffn, bias=False)

    def forward(self, x, rotation):
        x = x + self.attention(self.first(x), rotation)
        y = self.second(x)
        if self.llama:
            return x + self.down(F.silu(self.gate(y)) * self.up(y))
        return x + self.down(F.gelu(self.up(y), approximate="tanh"))


class Model(nn.Module):
    """Tied embeddings; the loss is the mean over all tokens."""

    def __init__(self, shape):
        super().__init__()
        width = shape["width"]
        self.shape, self.tokens = shape, nn.Embedding(shape["vocab"], width)
        if "positions" in shape:
            self.positions = nn.Embedding(shape["positions"], width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape["layers"]))
        self.norm = RmsNorm(width) if "theta" in shape else nn.LayerNorm(width)

    def forward(self, ids, targets):
        x, length, rotation = self.tokens(ids), ids.shape[1], None
        if "positions" in self.shape:
            x = x + self.positions(torch.arange(length))
        else:
            size = self.shape["width"] // self.shape["heads"]
            rates = self.shape["theta"] ** (-torch.arange(0, size, 2).float() / size)
            angles = torch.outer(torch.arange(length).float(), rates).repeat(1, 2)
            rotation = angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, rotation)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, self.shape["vocab"]).float(), targets.view(-1))


def main():
    if len(sys.argv) != 7 or sys.argv[1] not in MODELS or sys.argv[5] not in ("fp32", "bf16"):
        sys.exit(__doc__)
    batch, length, threads, steps = (int(sys.argv[i]) for i in (2, 3, 4, 6))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape = MODELS[sys.argv[1]]
    model = Model(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, targets = torch.randint(0, shape["vocab"], (2, batch, length))
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=sys.argv[5] == "bf16"):
            loss = model(ids, targets)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"torch": torch.__version__, "parameters": parameters, "seconds": seconds}))


if __name__ == "__main__":
    main()
