"""The models of checks/write.py for PyTorch, with their names of weights."""

import torch
from torch import nn

WIDTH, HEADS, INNER, PAST, TOKENS = 64, 4, 176, 5, 3
HEAD = WIDTH // HEADS


class Multilayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(64, 256))
        self.b1 = nn.Parameter(torch.empty(256))
        self.w2 = nn.Parameter(torch.empty(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.w1 + self.b1) @ self.w2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(16, 16, 3, 3))
        self.w2 = nn.Parameter(torch.empty(16, 16, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(nn.functional.conv2d(x, self.w1, padding=1))
        return nn.functional.conv2d(inside, self.w2, padding=1) + x


class Layer(nn.Module):
    wq: nn.Parameter
    wk: nn.Parameter
    wv: nn.Parameter
    wo: nn.Parameter
    norm1: nn.Parameter
    norm2: nn.Parameter
    gate: nn.Parameter
    up: nn.Parameter
    cos: torch.Tensor
    sin: torch.Tensor
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("wq", "wk", "wv", "wo"):
            self.register_parameter(name, nn.Parameter(torch.empty(WIDTH, WIDTH)))
        for name in ("norm1", "norm2"):
            self.register_parameter(name, nn.Parameter(torch.empty(WIDTH)))
        for name in ("gate", "up"):
            self.register_parameter(name, nn.Parameter(torch.empty(WIDTH, INNER)))
        self.down = nn.Parameter(torch.empty(INNER, WIDTH))
        positions = torch.arange(PAST, PAST + TOKENS, dtype=torch.float64)[:, None]
        angles = positions / 10000 ** (torch.arange(HEAD // 2, dtype=torch.float64) * 2 / HEAD)
        angles = torch.cat([angles, angles], 1)
        seen = torch.arange(PAST + TOKENS)[None] <= torch.arange(PAST, PAST + TOKENS)[:, None]
        # What is not persistent is no weight: it stays in the program.
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self.register_buffer("mask", torch.where(seen, 0.0, -1e9), persistent=False)

    def normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, TOKENS, HEADS, HEAD).transpose(1, 2)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat([-high, low], -1) * self.sin

    def forward(
        self, x: torch.Tensor, past_keys: torch.Tensor, past_values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        normal = self.normed(x, self.norm1)
        keys = torch.cat([past_keys, self.turned(self.heads(normal @ self.wk))], 2)
        values = torch.cat([past_values, self.heads(normal @ self.wv)], 2)
        scores = self.turned(self.heads(normal @ self.wq)) @ keys.transpose(2, 3) * HEAD**-0.5 + self.mask
        mixed = (torch.softmax(scores, -1) @ values).transpose(1, 2).reshape(1, TOKENS, WIDTH)
        middle = x + mixed @ self.wo
        normal = self.normed(middle, self.norm2)
        inside = nn.functional.silu(normal @ self.gate) * (normal @ self.up)
        return middle + inside @ self.down, keys, values


def mlp(batch: int = 8) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Multilayer(), (torch.zeros(batch, 64),)


def block() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Block(), (torch.zeros(1, 16, 12, 12),)


def layer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    past = torch.zeros(1, HEADS, PAST, HEAD)  # One tensor as an example of two inputs.
    return Layer(), (torch.zeros(1, TOKENS, WIDTH), past, past)
