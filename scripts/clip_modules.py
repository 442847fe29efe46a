"""PyTorch modules of the CLIP architecture (Radford et al. 2021) under the parameter names of the published archives.

`ImageTower` is the vision transformer, `Clip` adds the causal text transformer. Attention and MLP sizes, LayerNorm eps
and the activation are arguments. `write_archive` stores a TorchScript module without source locations.
Needs: torch.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

EMBEDDINGS = (
    *("class_embedding", "positional_embedding", "token_embedding.weight"),
    *("cls_token", "pos_embed", "class_token", "pos_embedding"),
)
EARLIEST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class TowerShape:
    """Sizes of one transformer; `output` is the width after the projection."""

    width: int
    blocks: int
    heads: int
    mlp: int
    output: int
    eps: float = 1e-5
    activation: str = "quick-gelu"


@dataclass(frozen=True)
class ImageShape:
    image_size: int
    patch: int

    @property
    def tokens(self):
        return (self.image_size // self.patch) ** 2 + 1


@dataclass(frozen=True)
class TextShape:
    vocabulary: int
    context: int


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {"quick-gelu": QuickGelu, "gelu": nn.GELU}


class WideLayerNorm(nn.LayerNorm):
    """LayerNorm computed in f32 whatever the type of its input."""

    def forward(self, x):
        return super().forward(x.float()).to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.c_fc = nn.Linear(shape.width, shape.mlp)
        self.gelu = ACTIVATIONS[shape.activation]()
        self.c_proj = nn.Linear(shape.mlp, shape.width)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Pre-norm residual block on tokens [T, B, width]."""

    def __init__(self, shape):
        super().__init__()
        self.attn = nn.MultiheadAttention(shape.width, shape.heads)
        self.ln_1 = WideLayerNorm(shape.width, eps=shape.eps)
        self.mlp = Mlp(shape)
        self.ln_2 = WideLayerNorm(shape.width, eps=shape.eps)

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.resblocks = nn.ModuleList([Block(shape) for _ in range(shape.blocks)])

    def forward(self, x, mask=None):
        x = x.transpose(0, 1)
        for block in self.resblocks:
            x = block(x, mask)
        return x.transpose(0, 1)


class ImageTower(nn.Module):
    """Images [B, 3, S, S] to features [B, output]."""

    def __init__(self, image, shape):
        super().__init__()
        self.conv1 = nn.Conv2d(3, shape.width, image.patch, stride=image.patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(shape.width))
        self.positional_embedding = nn.Parameter(torch.zeros(image.tokens, shape.width))
        self.ln_pre = WideLayerNorm(shape.width, eps=shape.eps)
        self.transformer = Transformer(shape)
        self.ln_post = WideLayerNorm(shape.width, eps=shape.eps)
        self.proj = nn.Parameter(torch.zeros(shape.width, shape.output))

    def forward(self, images):
        patches = self.conv1(images.to(self.conv1.weight.dtype)).flatten(2).transpose(1, 2)
        first = self.class_embedding.to(patches.dtype).expand(patches.shape[0], 1, -1)
        x = torch.cat([first, patches], dim=1) + self.positional_embedding.to(patches.dtype)
        x = self.transformer(self.ln_pre(x))
        return self.ln_post(x[:, 0]) @ self.proj


class Clip(nn.Module):
    """Both towers; `forward(images, tokens)` gives the two matrices of scaled cosine similarities."""

    def __init__(self, image, visual, text, language):
        super().__init__()
        self.visual = ImageTower(image, visual)
        self.transformer = Transformer(language)
        self.token_embedding = nn.Embedding(text.vocabulary, language.width)
        self.positional_embedding = nn.Parameter(torch.zeros(text.context, language.width))
        self.ln_final = WideLayerNorm(language.width, eps=language.eps)
        self.text_projection = nn.Parameter(torch.zeros(language.width, language.output))
        self.logit_scale = nn.Parameter(torch.tensor(100.0).log())
        self.register_buffer("input_resolution", torch.tensor(image.image_size))
        self.register_buffer("context_length", torch.tensor(text.context))
        self.register_buffer("vocab_size", torch.tensor(text.vocabulary))

    def encode_image(self, images):
        return self.visual(images)

    def encode_text(self, tokens):
        dtype = self.visual.conv1.weight.dtype
        x = (self.token_embedding(tokens) + self.positional_embedding).to(dtype)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), dtype=dtype).triu(1)
        x = self.ln_final(self.transformer(x, mask))
        return x[torch.arange(x.shape[0]), tokens.argmax(-1)] @ self.text_projection

    def forward(self, images, tokens):
        features = F.normalize(self.encode_image(images), dim=-1)
        words = F.normalize(self.encode_text(tokens), dim=-1)
        logits = self.logit_scale.exp() * features @ words.t()
        return logits, logits.t()


def halve(module):
    """The published mixture: matrices and their biases in f16; LayerNorms and embeddings stay f32."""
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear, nn.MultiheadAttention)):
            for parameter in part.parameters(recurse=False):
                parameter.data = parameter.data.half()
        for name in ("proj", "text_projection"):
            matrix = getattr(part, name, None)
            if isinstance(matrix, nn.Parameter):
                matrix.data = matrix.data.half()
    return module


def randomise(module, seed):
    """Random weights of trained-like sizes: normal, matrices by 1/sqrt(fan-in), LayerNorm scales around 1."""
    generator = torch.Generator().manual_seed(seed)

    def noise(parameter, scale):
        return scale * torch.randn(parameter.shape, generator=generator)

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("logit_scale"):
                continue
            if name.endswith(EMBEDDINGS):
                # small tokens make the first LayerNorm sensitive to its eps
                parameter.copy_(noise(parameter, 0.01))
            elif parameter.dim() == 1:
                is_scale = name.endswith("weight")
                parameter.copy_(noise(parameter, 0.2) + (1.0 if is_scale else 0.0))
            elif name.endswith("proj") and parameter.dim() == 2:
                parameter.copy_(noise(parameter, parameter.shape[0] ** -0.5))
            else:
                parameter.copy_(noise(parameter, parameter[0].numel() ** -0.5))
    return module


def write_archive(scripted, path, compress=False):
    """Save a TorchScript module; source locations (`*.debug_pkl`: paths of the exporting machine) are left out.

    Returns the size in bytes.
    """
    path = Path(path)
    whole = io.BytesIO()
    torch.jit.save(scripted, whole)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for item in source.infolist():
            if item.filename.endswith(".debug_pkl"):
                continue
            # the first folder of a torch archive bears the name of its file
            renamed = f"{path.stem}/{item.filename.split('/', 1)[1]}"
            entry = zipfile.ZipInfo(renamed, EARLIEST_ZIP_DATE)
            compression = zipfile.ZIP_DEFLATED if compress or "/code/" in renamed else zipfile.ZIP_STORED
            target.writestr(entry, source.read(item), compress_type=compression)
    return path.stat().st_size
