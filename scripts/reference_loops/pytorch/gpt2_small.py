"""GPT-2 small in PyTorch, as nanoGPT writes it, without its padding of the vocabulary."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, WIDTH, DEPTH, HEADS = 50257, 1024, 768, 12, 12


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (part.view(B, T, HEADS, C // HEADS).transpose(1, 2)
                   for part in self.c_attn(x).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.wte.weight, std=0.02)
        self.lm_head.weight = self.wte.weight

    def forward(self, words):
        places = torch.arange(words.size(1), device=words.device)
        return self.lm_head(self.ln_f(self.h(self.wte(words) + self.wpe(places))))


def build(options):
    words, targets = torch.randint(VOCABULARY, (2, options.batch, LENGTH))
    return GPT(), words, targets, 0.01
