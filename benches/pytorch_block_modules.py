# SPDX-License-Identifier: MIT OR Apache-2.0
"""The blocks of pytorch_blocks.py: modules of transformers, of torch for two of convolutions, and their tensors by the names of cusync's pages."""
import math
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, Gemma2Config, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig, ViTConfig, WhisperConfig
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.mistral.modeling_mistral import MistralAttention
from transformers.models.phi3.modeling_phi3 import Phi3DecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts
from transformers.models.vit.modeling_vit import ViTLayer
from transformers.models.whisper.modeling_whisper import WhisperEncoderLayer


class Layer(nn.Module):
    """A module of transformers with the tensors that its model gives it: rotary tables, a mask, a cache."""

    def __init__(self, inner, residual=False, table=None, first=0, rows=0, mask=None, cache=None):
        super().__init__()
        self.inner, self.residual, self.first = inner, residual, first
        cos, sin = (None, None) if table is None else table[first : first + rows].chunk(2, -1)
        twice = lambda half: None if half is None else torch.cat((half, half), -1)[None]
        keys, values = cache or (None, None)
        tensors = {"table": table, "cos": twice(cos), "sin": twice(sin), "mask": mask, "keys": keys, "values": values}
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def update(self, keys, values, *_, **__):
        """As a cache of transformers: appends a token, and returns all tokens."""
        last = self.first + keys.shape[2]
        self.keys[:, :, self.first : last] = keys
        self.values[:, :, self.first : last] = values
        return self.keys[:, :, :last], self.values[:, :, :last]

    def forward(self, x):
        given = {"attention_mask": self.mask}
        if self.cos is not None:
            given["position_embeddings"] = (self.cos, self.sin)
        if self.keys is not None:
            given["past_key_values"] = self
        y = self.inner(x, **given)
        y = y[0] if isinstance(y, tuple) else y
        return x + y if self.residual else y


class MixtureOfExperts(nn.Module):
    """Experts chosen by given scores, and a residual. Scores that are rounded differently would choose other experts, so they are an input."""

    def __init__(self, config, rows):
        super().__init__()
        self.experts, self.top_k = Qwen3MoeExperts(config), config.num_experts_per_tok
        self.register_buffer("scores", torch.randn(rows, config.num_experts))

    def forward(self, x):
        weights, chosen = torch.topk(self.scores.softmax(-1, dtype=torch.float), self.top_k)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return x + self.experts(x, chosen, weights)


class InvertedResidual(nn.Module):
    """Of MobileNetV2, its batch norms folded into filters and biases."""

    def __init__(self, channels, wide):
        super().__init__()
        self.expand, self.project = nn.Conv2d(channels, wide, 1), nn.Conv2d(wide, channels, 1)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)

    def forward(self, x):
        return x + self.project(F.relu6(self.depthwise(F.relu6(self.expand(x)))))


class ResnetBlock(nn.Module):
    """Of Stable Diffusion's U-Net; the bias of the first convolution contains the embedding of the time step."""

    def __init__(self, channels, groups):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


def sizes(d, **more):
    """Fields of a decoder's configuration."""
    names = {"hidden_size": "H", "intermediate_size": "I", "num_attention_heads": "HQ", "head_dim": "D"}
    found = {field: d[dim] for field, dim in names.items() if dim in d}
    return {**found, "num_key_value_heads": d.get("HKV", d["HQ"]), "rms_norm_eps": 1e-6, "attn_implementation": "sdpa", **more}


def table(d, theta):
    """Rotary table in the form that cusync reads: cosines, then sines."""
    angles = torch.arange(d["S"], dtype=torch.float64)[:, None] * theta ** (-torch.arange(0, d["D"], 2, dtype=torch.float64) / d["D"])
    return torch.cat((angles.cos(), angles.sin()), -1).float()


def decoder(d, module, config, theta, **more):
    inner = module(config, layer_idx=0)
    return Layer(inner, residual="Attention" in module.__name__, table=table(d, theta), **{"rows": d["S"], **more})


def hidden(d):
    """Pairs of tokens whose key the query does not see."""
    distance = torch.arange(d["S"])[:, None] - torch.arange(d["S"])
    return (distance < 0) | (distance >= d.get("W", d["S"]))


def gemma2(d):
    # Only the eager attention of transformers has softcaps, beside that by flex_attention.
    config = Gemma2Config(**sizes(d, attn_implementation="eager", query_pre_attn_scalar=d["D"]))
    return decoder(d, Gemma2DecoderLayer, config, 1e4, mask=torch.zeros(d["S"], d["S"]).masked_fill(hidden(d), -math.inf)[None, None])


def qwen25(d):
    cache = [torch.empty(d["B"], d["HKV"], d["S"], d["D"]).normal_() for _ in range(2)]
    return decoder(d, Qwen2DecoderLayer, Qwen2Config(**sizes(d)), 1e6, first=d["L"] - 1, rows=1, cache=cache)


def bert(d):
    fields = dict(hidden_size=d["H"], intermediate_size=d["I"], num_attention_heads=d["HQ"], attn_implementation="sdpa")
    return Layer(BertLayer(BertConfig(**fields)))


def vit(d):
    fields = dict(hidden_size=d["H"], intermediate_size=d["I"], num_attention_heads=d["HQ"], attn_implementation="sdpa")
    return Layer(ViTLayer(ViTConfig(**fields)))


def whisper(d):
    fields = dict(d_model=d["H"], encoder_ffn_dim=d["I"], encoder_attention_heads=d["HQ"], attn_implementation="sdpa")
    return Layer(WhisperEncoderLayer(WhisperConfig(**fields)))


def matrix(*linears):
    """Weights side by side, K x N."""
    return torch.cat([linear.weight for linear in linears]).t().contiguous()


def vector(*linears):
    """Biases one behind the other; zeros where there is none."""
    return torch.cat([linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias for linear in linears])


def decoder_tensors(net):
    """Tensors of a decoder's layer, or of its attention, by the names of the pages."""
    inner = net.inner
    attention = getattr(inner, "self_attn", inner)
    products = [attention.qkv_proj] if hasattr(attention, "qkv_proj") else [attention.q_proj, attention.k_proj, attention.v_proj]
    found = {"Wqkv": matrix(*products), "Wo": matrix(attention.o_proj), "cs": net.table, "bqkv": vector(*products)}
    if hasattr(attention, "q_norm"):
        found |= {"gq": attention.q_norm.weight, "gk": attention.k_norm.weight}
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    norms = [getattr(inner, name) for name in names if hasattr(inner, name)]
    found |= {f"g{number}": norm.weight for number, norm in enumerate(norms, 1)}
    if hasattr(inner, "mlp"):
        both = matrix(inner.mlp.gate_up_proj) if hasattr(inner.mlp, "gate_up_proj") else matrix(inner.mlp.gate_proj, inner.mlp.up_proj)
        gate, up = both.chunk(2, -1)
        found |= {"Wg": gate.contiguous(), "Wu": up.contiguous(), "Wd": matrix(inner.mlp.down_proj)}
    if net.keys is not None:
        lengths = torch.full((len(net.keys),), net.first, dtype=torch.int32, device=net.keys.device)
        found |= {"K": net.keys.clone(), "V": net.values.clone(), "n": lengths}
    return found


def encoder_tensors(net):
    linears = [module for module in net.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in net.modules() if isinstance(module, nn.LayerNorm)]
    if isinstance(net.inner, WhisperEncoderLayer):  # keys, values, queries
        linears = [linears[place] for place in (2, 0, 1, 3, 4, 5)]
    groups = {"qkv": linears[:3], "o": linears[3:4], "1": linears[4:5], "2": linears[5:]}
    found = {f"W{name}": matrix(*group) for name, group in groups.items()} | {f"b{name}": vector(*group) for name, group in groups.items()}
    return found | {f"{name}{i}": tensor for i, norm in enumerate(norms, 1) for name, tensor in (("g", norm.weight), ("c", norm.bias))}


def experts(d):
    fields = dict(hidden_size=d["H"], moe_intermediate_size=d["I"], num_experts=d["E"], num_experts_per_tok=d["K"])
    return MixtureOfExperts(Qwen3MoeConfig(**fields, experts_implementation="grouped_mm"), d["M"])


def experts_tensors(net):
    # Rows of outputs, as cusync reads them. Gate and up of an expert are one matrix of transformers.
    gate, up = net.experts.gate_up_proj.chunk(2, 1)
    found = {"Wg": gate, "Wu": up, "Wd": net.experts.down_proj}
    return {name: weights.flatten(0, 1).contiguous() for name, weights in found.items()} | {"S": net.scores}


def image_tensors(net):
    filters = lambda conv: conv.weight.permute(2, 3, 1, 0).contiguous()
    if isinstance(net, InvertedResidual):
        convs = (("W1", "b1", net.expand), ("F", "b2", net.depthwise), ("W2", "b3", net.project))
        return {weight: filters(conv) for weight, _, conv in convs} | {bias: conv.bias for _, bias, conv in convs}
    found = {"g1": net.norm1.weight, "b1": net.norm1.bias, "g2": net.norm2.weight, "b2": net.norm2.bias}
    return found | {"F1": filters(net.conv1), "c1": net.conv1.bias, "F2": filters(net.conv2), "c2": net.conv2.bias}


@dataclass
class Block:
    """A block by the name of its page, with its module, cusync's tensors of a module, and dims for tests."""

    make: Callable
    tensors: Callable
    small: dict
    folder: str = "benches/blocks"
    shape: tuple = ("B", "S", "H")
    more: tuple = ()  # other implementations of torch that may be faster: a word for them, the field of a module's configuration, its value
    page: str = None  # if it is not the block's name
    dims: dict = field(default_factory=dict)  # other than the page's


HEADS = {"S": 40, "H": 128, "HQ": 4, "HKV": 2, "D": 32}
ENCODER = {"B": 2, "S": 37, "H": 64, "I": 128, "HQ": 2, "D": 32}
FLEX = ("flex", "_attn_implementation", "flex_attention")
EXPERTS = {"shape": ("M", "H"), "more": (("batched", "_experts_implementation", "batched_mm"),)}
IMAGES = {"folder": "policies", "shape": ("B", "C", "HW", "HW")}
BLOCKS = {
    "qwen25_7b_generate": Block(qwen25, decoder_tensors, {**HEADS, "B": 3, "S": 128, "L": 50, "D": 64, "I": 256}, shape=("B", 1, "H")),
    "qwen3_8b_layer": Block(lambda d: decoder(d, Qwen3DecoderLayer, Qwen3Config(**sizes(d)), 1e6), decoder_tensors, {**HEADS, "I": 256}),
    "gemma2_9b_layer": Block(gemma2, decoder_tensors, {**HEADS, "I": 256}, more=(FLEX,)),
    "mistral_7b_attention": Block(lambda d: decoder(d, MistralAttention, MistralConfig(**sizes(d, sliding_window=d["W"])), 1e4, mask=~hidden(d)[None, None]), decoder_tensors, {**HEADS, "W": 16}, more=(FLEX,)),
    "phi3_mini_layer": Block(lambda d: decoder(d, Phi3DecoderLayer, Phi3Config(**sizes(d, rms_norm_eps=1e-5)), 1e4), decoder_tensors, {"S": 40, "H": 128, "I": 256, "HQ": 4, "D": 32}),
    "llama31_8b_attention": Block(lambda d: decoder(d, LlamaAttention, LlamaConfig(**sizes(d)), 5e5), decoder_tensors, {**HEADS, "B": 2}),
    "bert_layer": Block(bert, encoder_tensors, ENCODER),
    "vit_layer": Block(vit, encoder_tensors, ENCODER),
    "whisper_layer": Block(whisper, encoder_tensors, ENCODER),
    **{f"{page}_{m}": Block(experts, experts_tensors, {"M": 5, "H": 64, "E": 8, "I": 40, "K": 2}, page=f"{page}_experts", dims={"M": m}, **EXPERTS)
       for page in ("qwen3", "mixtral") for m in (1, 32, 2048)},
    "mobilenetv2": Block(lambda d: InvertedResidual(d["C"], d["E"]), image_tensors, {"B": 2, "HW": 14, "C": 16, "E": 48}, **IMAGES),
    "sd_resnet": Block(lambda d: ResnetBlock(d["C"], d["G"]), image_tensors, {"B": 2, "HW": 8, "C": 64, "G": 8}, **IMAGES),
}


def randomized(net, dtype):
    """Random weights that keep the variance of activations, gains about one, small biases; rounded to the element type."""
    for module in net.modules():
        for name, values in module.named_parameters(recurse=False):
            if values.ndim > 1:
                terms = values.shape[-1] if values.ndim == 3 else values[0].numel()  # three: a matrix for each expert
                values.normal_(std=terms**-0.5)
            else:
                values.normal_(std=0.1)
                if name != "bias" and "Gemma" not in type(module).__name__:  # Gemma's gains are 1 + g
                    values += 1
    layout = torch.contiguous_format if isinstance(net, Layer) else torch.channels_last
    return net.eval().to(dtype=dtype, memory_format=layout)
