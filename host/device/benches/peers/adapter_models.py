"""The networks of the adapter benchmarks, as PyTorch modules with random parameters.

Each also has a small form with smaller dimensions, to test the harness if the full networks would take too long. Its figures
say nothing about speed. No network has dropout, on either side.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

import models


class Bottleneck(nn.Module):
    """Three convolutions with a residual connection; the second one has the stride. Source: He et al., arXiv:1512.03385."""

    def __init__(self, inputs, width, stride, first):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = None
        if first:
            self.shortcut = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.norm4 = nn.BatchNorm2d(4 * width)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        if self.shortcut is not None:
            x = self.norm4(self.shortcut(x))
        return F.relu(x + y)


class ResNet50(nn.Module):
    """ResNet-50 for images `[b, 3, 224, 224]` of a thousand classes. Training normalises by the batch's statistics."""

    def __init__(self, small):
        super().__init__()
        width, counts, classes = (8, [1, 1, 1, 1], 10) if small else (64, [3, 4, 6, 3], 1000)
        self.side, self.classes = (32 if small else 224), classes
        self.conv1, self.norm1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage, count in enumerate(counts):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(inputs, width << stage, stride, index == 0))
                inputs = 4 * (width << stage)
        self.blocks, self.fc = nn.ModuleList(blocks), nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.1)
                nn.init.uniform_(module.running_var, 0.5, 1.5)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(image))), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

    def data(self, batch):
        image = torch.randn(batch, 3, self.side, self.side)
        return {"image": image, "labels": torch.randint(self.classes, (batch,))}


class RmsNorm(nn.Module):
    """An RMS normalisation. Source: Zhang and Sennrich, arXiv:1910.07467."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class DecoderLayer(nn.Module):
    """A layer of Llama: grouped-query attention, rotary embeddings, a gated MLP. Source: Touvron et al., arXiv:2307.09288."""

    def __init__(self, width, heads, shared, inner):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.heads, self.shared = heads, shared
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.query, self.output = linear(width, width), linear(width, width)
        self.key, self.value = (linear(width, width // heads * shared) for _ in range(2))
        self.gate, self.wide, self.narrow = linear(width, inner), linear(width, inner), linear(inner, width)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    def attend(self, x, cos, sin):
        turn = lambda x: x * cos + torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1) * sin
        q = turn(self.split(self.query(x), self.heads))
        k, v = turn(self.split(self.key(x), self.shared)), self.split(self.value(x), self.shared)
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(found.transpose(1, 2).reshape(x.shape))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.narrow(F.silu(self.gate(y)) * self.wide(y))


class Decoder(nn.Module):
    """A language model with the dimensions of SmolLM2-135M. Source: Allal et al., arXiv:2502.02737."""

    BASE = 100_000.0

    def __init__(self, small):
        super().__init__()
        layers, width, heads, shared, inner, words = (2, 48, 6, 2, 96, 200) if small else (30, 576, 9, 3, 1536, 49152)
        self.length, self.metadata = (16 if small else 128), {"heads": heads, "shared": shared}
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, shared, inner) for _ in range(layers))
        self.norm = RmsNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=width**-0.5)
        half = width // heads // 2
        turns = torch.arange(self.length)[:, None] * self.BASE ** (-torch.arange(half, dtype=torch.float64) / half)
        self.register_buffer("cos", turns.cos().float().repeat(1, 2), persistent=False)
        self.register_buffer("sin", turns.sin().float().repeat(1, 2), persistent=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.words.weight).flatten(0, 1)

    def data(self, batch):
        words = lambda: torch.randint(self.words.num_embeddings, (batch, self.length))
        return {"tokens": words(), "labels": words().flatten()}


class Transformer(nn.Module):
    """The base model of Vaswani et al., arXiv:1706.03762. Encoder, decoder and output share one embedding table."""

    def __init__(self, small):
        super().__init__()
        layers, width, heads, inner, words = (1, 32, 4, 64, 200) if small else (6, 512, 8, 2048, 32000)
        self.length, self.metadata = (8 if small else 64), {"heads": heads}
        self.words, self.scale = nn.Embedding(words, width), math.sqrt(width)
        self.encoder = nn.ModuleList(models.Layer(width, heads, inner, crossed=False) for _ in range(layers))
        self.decoder = nn.ModuleList(models.Layer(width, heads, inner, crossed=True) for _ in range(layers))
        nn.init.normal_(self.words.weight, std=width**-0.5)
        pairs = torch.arange(width // 2, dtype=torch.float64)
        turns = torch.arange(self.length)[:, None] * 10_000.0 ** (-2 * pairs / width)
        places = torch.stack([turns.sin(), turns.cos()], -1).flatten(1).float()
        self.register_buffer("places", places, persistent=False)

    def embed(self, words):
        return self.words(words) * self.scale + self.places

    def forward(self, source, target):
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, memory)
        return F.linear(x, self.words.weight).flatten(0, 1)

    def data(self, batch):
        words = lambda: torch.randint(self.words.num_embeddings, (batch, self.length))
        return {"source": words(), "target": words(), "labels": words().flatten()}


class LeNet(models.LeNet):
    """LeNet; it is small already and has no small form."""

    def __init__(self, small):
        super().__init__()

    def data(self, batch):
        return {"image": torch.rand(batch, 1, 28, 28), "labels": torch.randint(10, (batch,))}


NETWORKS = {"lenet": LeNet, "resnet50": ResNet50, "decoder": Decoder, "transformer": Transformer}


def make(name, batch, small):
    """Returns a network, and its inputs and `labels` by name; always the same."""
    torch.manual_seed(1)
    model = NETWORKS[name](small)
    return model, model.data(batch)


def start(model, inputs):
    """Returns the initial tensors of both sides, as NumPy arrays by name: parameters, statistics and inputs."""
    found = models.parameters(model)
    found |= {name: buffer.numpy() for name, buffer in model.named_buffers() if "running" in name}
    return found | {key: (x.int() if x.dtype == torch.int64 else x).numpy() for key, x in inputs.items()}
