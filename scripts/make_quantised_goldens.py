#!/usr/bin/env python3
"""Writes what packages compute of quantised weights: tests/fixtures/quantised.json, codes, scales and numbers by bitsandbytes, and
tests/fixtures/language/llama-FORMAT, a small random Llama in each format that bella reads, with the logits, gradients and tokens that
transformers computes with the dequantised weights (as scripts/make_language_fixtures.py does); and a BERT and a RoBERTa in formats of
bitsandbytes, tests/fixtures/encoder/folders/NAME-FORMAT (as scripts/make_encoder_fixtures.py does), whose classifiers' last layers stay plain, as
that of transformers do.

    pip install torch transformers tokenizers safetensors bitsandbytes
    python scripts/make_quantised_goldens.py AUTOGPTQ AUTOAWQ [encoders]    # checkouts of AutoGPTQ and AutoAWQ; encoders: those alone

bitsandbytes quantises by its own functions on the CPU and writes its own state. It dequantises 4 bits by what it calls its default: its
own kernel for CPUs gives other numbers where a row is no multiple of a block (version 0.50.2), as if each row began a block, while its
quantisation goes on from row to row. GPTQ is packed and dequantised by
AutoGPTQ's QuantLinear (auto_gptq/nn_modules/qlinear/qlinear_cuda.py), AWQ packed by AutoAWQ's WQLinear_GEMM (awq/modules/linear/gemm.py)
and dequantised by its dequantize_gemm (awq/utils/packing_utils.py).

Written by bitsandbytes 0.50.2, transformers 5.24.0, torch 2.11.0, AutoGPTQ 9f7d37072917ab3a7545835f23e808294a542153 and AutoAWQ
88e4c76b20755db275574e6a03c83c84ba3bece5.
"""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import bitsandbytes.functional as bnb
import make_encoder_fixtures as encoders
import torch
import transformers as hf
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from author_code import absent
from make_language_fixtures import LAYERS, OUT, PROMPTS, SMALL, WORDS, last_logits, low_rank, padded, randomised, words
from safetensors.torch import save_file

GROUP = 16
AUTO_GPTQ, AUTO_AWQ = map(Path, sys.argv[1:3])


def module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def dequantized(codes, state):
    return _dequantize_4bit_compute(codes.reshape(-1), state.absmax, state.code, state.blocksize, state.shape, state.dtype).float()


def goldens():
    """Codes, scales and numbers of matrices, one of which ends in the middle of a block, and one that is stored in bf16."""
    found = {}
    for name, shape, kind in [("whole", (6, 64), torch.float32), ("part", (5, 50), torch.float32), ("half", (4, 96), torch.bfloat16)]:
        generator = torch.Generator().manual_seed(len(name))
        weight = (torch.randn(shape, generator=generator) * 0.1).to(kind)
        weight[1, :3] = 0.0
        codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        rows, largest, _ = bnb.int8_vectorwise_quant(weight.float())
        found[name] = {
            "weight": weight.float().tolist(),
            "nf4": {"codes": codes.flatten().tolist(), "largest": state.absmax.tolist(),
                    "numbers": dequantized(codes, state).tolist()},
            "int8": {"codes": rows.tolist(), "largest": largest.tolist(),
                     "numbers": bnb.int8_vectorwise_dequant(rows, largest).tolist()},
        }
    (OUT.parent / "quantised.json").write_text(json.dumps(found) + "\n")


def bitsandbytes_nf4(weight, nested):
    codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=nested)
    stored = {f"weight.{key}": tensor for key, tensor in state.as_dict(packed=True).items()}
    if nested:
        state.absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    return {"weight": codes} | stored, dequantized(codes, state)


def bitsandbytes_int8(weight):
    codes, largest, _ = bnb.int8_vectorwise_quant(weight)
    stored = {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return stored, bnb.int8_vectorwise_dequant(codes, largest)


def rounded(weight, order):
    """Scales and zeros of groups of columns, of which the order says the group: both are such that f16 holds them."""
    groups = weight.shape[1] // GROUP
    scales, zeros = torch.zeros(weight.shape[0], groups), torch.zeros(weight.shape[0], groups)
    for group in range(groups):
        own = weight[:, order == group]
        low, high = own.min(1).values.clamp(max=0), own.max(1).values.clamp(min=0)
        scales[:, group] = ((high - low) / 15).half().float()
        zeros[:, group] = (-low / scales[:, group]).round().clamp(1, 15)
    numbers = (weight / scales[:, order] + zeros[:, order]).round().clamp(0, 15)
    return scales, zeros, (numbers - zeros[:, order]) * scales[:, order]


def gptq(weight, ordered):
    """The columns belong to groups in turn, as after sorting by activations, or in their order."""
    columns = torch.arange(weight.shape[1])
    order = columns % (weight.shape[1] // GROUP) if ordered else columns // GROUP
    scales, zeros, near = rounded(weight, order)
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = near
    packed = qlinear.QuantLinear(4, GROUP, weight.shape[1], weight.shape[0], False, weight_dtype=torch.float32)
    packed.pack(layer, scales, zeros.clone(), order.int())
    numbers = packed(torch.eye(weight.shape[1])).T.contiguous()
    assert (numbers - near).abs().max() < 1e-6
    stored = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales.half()}
    return stored | ({"g_idx": packed.g_idx.int()} if ordered else {}), numbers


def awq(weight):
    scales, zeros, near = rounded(weight, torch.arange(weight.shape[1]) // GROUP)
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = near
    packed = gemm.WQLinear_GEMM.from_linear(layer, 4, GROUP, False, scales.T.contiguous(), zeros.T.contiguous())
    numbers = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, GROUP).T.contiguous()
    assert (numbers - near).abs().max() < 1e-6
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}, numbers


def packed(model, plain, pack):
    """What is stored of a model whose linear layers are packed, all but `plain`; their weights become the numbers that are meant."""
    tensors = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with torch.no_grad():
        for layer, own in model.named_modules():
            if isinstance(own, torch.nn.Linear) and layer not in plain:
                stored, numbers = pack(own.weight.data.clone())
                own.weight.copy_(numbers)
                del tensors[f"{layer}.weight"]
                tensors |= {f"{layer}.{key}": tensor.contiguous() for key, tensor in stored.items()}
    return tensors


def store(tensors, folder, about):
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": about}, indent=2) + "\n")


def write_encoder(name, of, pack, about):
    """The encoder `of` in a format, without a tokenizer of its own."""
    kind, tokenizer, config, more = encoders.FOLDERS[of]
    folder, tokenizer = encoders.OUT / "folders" / name, tokenizer()
    shutil.rmtree(folder, ignore_errors=True)
    model = encoders.randomised(kind(config(len(tokenizer), **more)))
    model.save_pretrained(folder)
    store(packed(model, ("classifier", "classifier.out_proj"), pack), folder, about)
    encoders.write_reference(model, tokenizer, folder)


def write(name, pack, about):
    """The network `name`: what is stored, and what transformers computes with the numbers that it means. Without `pack` it is plain."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    sizes = SMALL | dict(hidden_size=32, intermediate_size=64)
    model = randomised(hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=len(WORDS) + 3, **sizes)))
    model.generation_config = hf.GenerationConfig(bos_token_id=1)
    model.save_pretrained(folder)
    words().save_pretrained(folder)
    if pack is None:
        return
    store(packed(model, ("lm_head",), pack), folder, about)
    ids = words()(PROMPTS)["input_ids"]
    (folder / "prompts.json").write_text(json.dumps({"prompts": PROMPTS, "ids": ids}, indent=1) + "\n")
    reference = {}
    with torch.no_grad():
        for side in ["left", "right"]:
            tokens, mask = padded(ids, side)
            reference |= {f"{side}.tokens": tokens, f"{side}.mask": mask, f"{side}.logits": last_logits(model, tokens, mask)}
        for row, one in enumerate(ids):
            found = model.generate(torch.tensor([one]), max_new_tokens=20, do_sample=False, pad_token_id=0)
            reference[f"greedy.{row}"] = found[0, len(one):]
    reference |= low_rank(model, *padded(ids, "right"), LAYERS)
    save_file({key: tensor.detach().contiguous() for key, tensor in reference.items()}, folder / "reference.safetensors")


def main():
    four = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    write_encoder("bert-nf4", "bert", lambda weight: bitsandbytes_nf4(weight, False), four)
    write_encoder("roberta-int8", "roberta", bitsandbytes_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True})
    if sys.argv[3:] == ["encoders"]:
        return
    goldens()
    write("llama-wide", None, None)
    write("llama-nf4", lambda weight: bitsandbytes_nf4(weight, False), four)
    write("llama-nf4-nested", lambda weight: bitsandbytes_nf4(weight, True), four | {"bnb_4bit_use_double_quant": True})
    write("llama-int8", bitsandbytes_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True})
    groups = {"bits": 4, "group_size": GROUP}
    write("llama-gptq", lambda weight: gptq(weight, True), groups | {"quant_method": "gptq", "desc_act": True, "sym": False})
    write("llama-gptq-plain", lambda weight: gptq(weight, False), groups | {"quant_method": "gptq", "checkpoint_format": "gptq"})
    write("llama-awq", awq, groups | {"quant_method": "awq", "version": "gemm", "zero_point": True})


if __name__ == "__main__":
    absent("autogptq_cuda_64", "autogptq_cuda_256")
    qlinear = module(AUTO_GPTQ / "auto_gptq/nn_modules/qlinear/qlinear_cuda.py", "qlinear")
    absent("awq", "awq.utils", "awq.utils.module", "awq.utils.utils", "awq.modules", "awq.modules.linear")
    sys.modules["awq.utils.module"].try_import = lambda name: (None, "")
    packing = module(AUTO_AWQ / "awq/utils/packing_utils.py", "awq.utils.packing_utils")
    sys.modules["awq.utils.packing_utils"] = packing
    gemm = module(AUTO_AWQ / "awq/modules/linear/gemm.py", "gemm")
    gemm.get_best_device = lambda: "cpu"
    dequantize_gemm = packing.dequantize_gemm
    main()
