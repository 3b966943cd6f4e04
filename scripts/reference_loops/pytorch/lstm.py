"""A word-level language model in PyTorch: two `nn.LSTM` layers of 256 over 10,000 words."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10000)

    def forward(self, words):
        return self.head(self.lstm(self.embedding(words))[0])  # (B, T) -> (B, T, K)


def build(options):
    words, targets = torch.randint(10000, (2, options.batch, options.words))
    return LanguageModel(), words, targets, 0.1
