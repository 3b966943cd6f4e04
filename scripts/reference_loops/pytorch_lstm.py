"""A word-level language model in PyTorch: two `nn.LSTM` layers of 256 over 10,000 words."""

import windows

options = windows.arguments(("stock", "compiled", "tuned"), words=True)

import pytorch_training  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10000)

    def forward(self, words):
        return self.head(self.lstm(self.embedding(words))[0])  # (B, T) -> (B, T, K)


words, targets = torch.randint(10000, (2, options.batch, options.words))
pytorch_training.train(LanguageModel(), words, targets, 0.1, options)
