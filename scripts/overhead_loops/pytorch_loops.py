"""FCN-5, ResNet-50 and a two-layer LSTM, written by hand in PyTorch without dlbench."""

import itertools

import loop

options = loop.arguments(["fcn5", "resnet50", "lstm32"])

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(options.threads)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def fcn5():
    return nn.Sequential(
        nn.Linear(784, 2048), nn.Sigmoid(),
        nn.Linear(2048, 4096), nn.Sigmoid(),
        nn.Linear(4096, 1024), nn.Sigmoid(),
        nn.Linear(1024, 10),
    )


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False),
                                          nn.BatchNorm2d(4 * width))
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.branch(x) + self.shortcut(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, padding=1)]
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            width = 64 * 2**stage
            layers.append(Bottleneck(channels, width, stride=2 if stage > 0 and block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10000)
        # The network has one bias vector in each layer.
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l1):
            nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])  # (B, T) -> (B, T, K)


def random_batch():
    if options.network == "fcn5":
        return torch.randn(options.batch, 784), torch.randint(10, (options.batch,))
    if options.network == "resnet50":
        return torch.randn(options.batch, 3, 224, 224), torch.randint(1000, (options.batch,))
    return torch.randint(10000, (options.batch, 32)), torch.randint(10000, (options.batch, 32))


device = torch.device(options.device)
model = {"fcn5": fcn5, "resnet50": resnet50, "lstm32": LanguageModel}[options.network]().to(device)
learning_rate = {"fcn5": 0.05, "resnet50": 0.01, "lstm32": 0.1}[options.network]
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=learning_rate, momentum=0.9)
loss_function = nn.CrossEntropyLoss()
batches = itertools.cycle([[tensor.to(device) for tensor in random_batch()]
                           for _ in range(options.batches)])


def train_step():
    inputs, targets = next(batches)
    optimizer.zero_grad()
    logits = model(inputs)
    loss = loss_function(logits.flatten(0, -2), targets.flatten())
    loss.backward()
    optimizer.step()


def synchronize():
    if device.type == "cuda":
        torch.cuda.synchronize()


loop.serve(train_step, synchronize, sum(p.numel() for p in trained))
