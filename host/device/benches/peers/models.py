"""The networks as PyTorch modules, with random parameters that keep activations of a sensible size."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class LeNet(nn.Module):
    """LeNet as in Caffe, on images `[b, 1, 28, 28]`."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, image):
        x = F.relu(F.max_pool2d(self.conv1(image), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    """Two convolutions with a residual connection. Source: He et al., arXiv:1512.03385."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1:
            self.shortcut, self.norm3 = nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.shortcut is not None:
            x = self.norm3(self.shortcut(x))
        return F.relu(x + y)


class ResNet18(nn.Module):
    """ResNet-18 for images `[b, 3, 224, 224]` of a thousand classes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        sizes += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.blocks = nn.ModuleList(Block(*size) for size in sizes)
        self.fc = nn.Linear(512, 1000)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(image))), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class BertLayer(nn.Module):
    """A layer of BERT. Source: Devlin et al., arXiv:1810.04805; names as in Hugging Face's `transformers`."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x):
        # Written out as primitives: ONNX Runtime recognises and fuses this pattern.
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        found = torch.matmul(F.softmax(scores, dim=-1), v)
        found = found.permute(0, 2, 1, 3).contiguous().view(x.shape)
        x = self.norm1(self.output(found) + x)
        return self.norm2(self.narrow(F.gelu(self.wide(x))) + x)


class Bert(nn.Module):
    """The encoder of BERT-base, on hidden states `[b, 128, 768]`."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(BertLayer(768, 12, 3072) for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Attention(nn.Module):
    """Multi-head attention with PyTorch's fused kernel."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        # One product for query, key and value, as in `nn.MultiheadAttention`.
        self.packed, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x, memory=None, causal=False):
        width = x.shape[-1]
        if memory is None:
            q, k, v = self.packed(x).split(width, dim=-1)
        else:
            weight, bias = self.packed.weight, self.packed.bias
            q = F.linear(x, weight[:width], bias[:width])
            k, v = F.linear(memory, weight[width:], bias[width:]).split(width, dim=-1)
        found = F.scaled_dot_product_attention(self.split(q), self.split(k), self.split(v), is_causal=causal)
        return self.output(found.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    """An encoder or decoder layer. Source: Vaswani et al., arXiv:1706.03762."""

    def __init__(self, width, heads, inner, crossed):
        super().__init__()
        self.own, self.norm1 = Attention(width, heads), nn.LayerNorm(width)
        if crossed:
            self.other, self.norm2 = Attention(width, heads), nn.LayerNorm(width)
        self.wide, self.narrow, self.norm3 = nn.Linear(width, inner), nn.Linear(inner, width), nn.LayerNorm(width)

    def forward(self, x, memory=None):
        x = self.norm1(x + self.own(x, causal=memory is not None))
        if memory is not None:
            x = self.norm2(x + self.other(x, memory))
        return self.norm3(x + self.narrow(F.relu(self.wide(x))))


class Seq2Seq(nn.Module):
    """A small sequence-to-sequence transformer for sentences of 32 words."""

    WORDS, LENGTH = 8000, 32

    def __init__(self, width=128, heads=4, inner=512, layers=2):
        super().__init__()
        self.source, self.target = nn.Embedding(self.WORDS, width), nn.Embedding(self.WORDS, width)
        self.places = nn.Parameter(torch.empty(self.LENGTH, width))
        self.encoder = nn.ModuleList(Layer(width, heads, inner, crossed=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, heads, inner, crossed=True) for _ in range(layers))
        self.words = nn.Linear(width, self.WORDS)
        for table in [self.source.weight, self.target.weight, self.places]:
            nn.init.normal_(table, std=width**-0.5)

    def forward(self, source, target):
        memory = self.source(source) + self.places
        for layer in self.encoder:
            memory = layer(memory)
        x = self.target(target) + self.places
        for layer in self.decoder:
            x = layer(x, memory)
        return self.words(x)


def make(name):
    """Returns a network, always with the same parameters."""
    torch.manual_seed(1)
    model = {"lenet": LeNet, "resnet18": ResNet18, "bert": Bert, "seq2seq": Seq2Seq}[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            # Statistics and scales of a trained network, so that folding them changes the weights.
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            # Equal tensors would be exported as one, which hides a layer from pattern matchers.
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    return model


def data(name, batch):
    """Returns the inputs of a network by name and, for training, `labels`."""
    torch.manual_seed(2)
    if name == "seq2seq":
        words = lambda: torch.randint(Seq2Seq.WORDS, (batch, Seq2Seq.LENGTH))
        return {"source": words(), "target": words(), "labels": words().flatten()}
    if name == "bert":
        return {"hidden": torch.randn(batch, 128, 768)}
    if name == "resnet18":
        return {"image": torch.randn(batch, 3, 224, 224)}
    return {"image": torch.rand(batch, 1, 28, 28), "labels": torch.randint(10, (batch,))}


def folded(model):
    """Folds each normalisation into the convolution before it."""
    model = model.eval()
    for module in model.modules():
        for conv, norm in [("conv1", "norm1"), ("conv2", "norm2"), ("shortcut", "norm3")]:
            if isinstance(getattr(module, norm, None), nn.BatchNorm2d):
                fused = nn.utils.fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm))
                setattr(module, conv, fused)
                setattr(module, norm, nn.Identity())
    return model


def parameters(model):
    """Returns parameters by name: weights of linear layers as `[inputs, outputs]`, packed ones split."""
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    found = {}
    for name, parameter in model.named_parameters():
        owner, _, kind = name.rpartition(".")
        tensor = parameter.detach()
        parts = {name: tensor}
        if owner.endswith("packed"):
            names = [name.replace("packed", part) for part in ["query", "key", "value"]]
            parts = dict(zip(names, tensor.chunk(3)))
        for name, part in parts.items():
            found[name] = (part.t() if owner in linear and kind == "weight" else part).contiguous().numpy()
    return found
